"""`pip install .`: what is installed is whole."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import robustvit, robustvit.zoo
from pathlib import Path
assert Path(robustvit.__file__).is_relative_to(sys.argv[1]), robustvit.__file__
from robustvit.papers.page import environment
for package, page in (("report", "page.html"), ("papers", "page.html"), ("report", "base.html")):
    environment(f"robustvit.{package}").get_template(page)
assert [entry.name for entry in robustvit.zoo.entries()] == ["digits-robust"]
robustvit.load_model("zoo:digits-robust")
print("whole")
"""


def test_the_installed_package_has_its_pages_and_its_model(tmp_path: Path) -> None:
    source, site = tmp_path / "source", str(tmp_path / "site")
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*install, "--target", site, str(source)], check=True, capture_output=True, timeout=300)
    checked = subprocess.run([sys.executable, "-c", PROGRAM, site], cwd=tmp_path, capture_output=True, text=True)
    assert checked.stdout == "whole\n", checked.stderr
