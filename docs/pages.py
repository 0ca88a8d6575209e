"""Collect the pages of all reports in a folder to serve: ``python docs/pages.py site``.

Each ``index.html`` of ``reports`` loads nothing else, so it is copied alone. The front page links to all of them and
repeats the verdict of each.
"""

import re
import shutil
import sys
from html import unescape
from pathlib import Path

from jinja2 import Environment

REPORTS = Path(__file__).parents[1] / "reports"

_FRONT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>synthbench: leaderboards</title>
<style>
:root { color-scheme: light dark; }
body { max-width: 44rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }
</style>
</head>
<body>
<h1>synthbench: leaderboards</h1>
<p>Synthetic sequence tasks for attention mechanisms.</p>
{% for name, verdict in reports.items() %}
<h2><a href="{{ name }}/">{{ name }}</a></h2>
<p>{{ verdict }}</p>
{% endfor %}
</body>
</html>
"""


def write(site: Path, reports: Path = REPORTS) -> list[Path]:
    """Copy the page of every report and write the front page; return the written files.

    Args:
        site: Folder to serve; created if missing.
        reports: Folder with a folder for each report.

    Raises:
        SystemExit: If no report has a page.
    """
    pages = sorted(reports.glob("*/index.html"))
    if not pages:
        sys.exit(f"no report in {reports} has an index.html; synthbench report writes one")
    written = [site / page.relative_to(reports) for page in pages]
    for page, target in zip(pages, written, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
    verdicts = {page.parent.name: _verdict(page) for page in pages}
    front = Environment(autoescape=True).from_string(_FRONT).render(reports=verdicts)
    (site / "index.html").write_text(front, encoding="utf-8")
    return [*written, site / "index.html"]


def _verdict(page: Path) -> str:
    found = re.search(r'<p class="verdict">(.*?)</p>', page.read_text(encoding="utf-8"), re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "", found[1])) if found else ""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/pages.py FOLDER")
    for path in write(Path(sys.argv[1])):
        print(path)  # noqa: T201
