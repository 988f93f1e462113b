"""Make the README's picture: the demo's report, as a browser shows it. Needs Chromium on the path.

make docs
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from robustvit.demo import demo

REPORT = Path("runs/demo/report.html")
PICTURE = Path(__file__).parent / "pictures" / "report.png"


def main() -> None:
    browser = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("make_picture: needs Chromium or Chrome on the path")
    if not REPORT.exists():
        demo(REPORT.parent)
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"]
        size = ["--window-size=1180,960", f"--user-data-dir={profile}", f"--screenshot={PICTURE}"]
        subprocess.run([browser, *flags, *size, REPORT.resolve().as_uri()], check=True, capture_output=True)
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
