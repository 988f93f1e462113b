"""`python -m robustvit.zoo RUN… --data cifar10:cifar10.npz --eps 8/255 --images 1000`: publish runs as entries of the zoo."""

import argparse
import sys
from pathlib import Path

from robustvit.attacks import PGD, autoattack
from robustvit.errors import UserError
from robustvit.evaluation.suites import Suite
from robustvit.threat import Threat, parse_number
from robustvit.zoo.publish import publish


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m robustvit.zoo", description=publish.__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--place", type=Path, default=Path("zoo"), help="the folder of entries")
    parser.add_argument("--data", required=True)
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--eps", required=True)
    parser.add_argument("--images", type=int)
    parser.add_argument("--device")
    options = parser.parse_args()
    try:
        threat = Threat(options.norm, parse_number(options.eps, "--eps"))
        suite: Suite = [None, PGD(threat, steps=50, seed=0), autoattack(threat)]
        for run in options.runs:
            print(publish(run, options.place, options.data, suite, options.images, options.device))
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
