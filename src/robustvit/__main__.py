"""`python -m robustvit`, and so `accelerate launch -m robustvit train …` on many devices."""

from robustvit.cli import main

main()
