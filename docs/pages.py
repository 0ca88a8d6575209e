"""Write the front page of a site of reports: ``python docs/pages.py site``.

It follows ``synthbench report --out site/NAME``, once for each report.

Each ``index.html`` in a folder of the site loads nothing else. The front page links to all of them and repeats the
verdict of each. ``make site`` does all of it.
"""

import re
import sys
from html import unescape
from pathlib import Path

from jinja2 import Environment

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
<p>Described in full: <a href="tasks.html">tasks</a>, <a href="mechanisms.html">mechanisms</a>.</p>
{% for name, verdict in reports.items() %}
<h2><a href="{{ name }}/">{{ name }}</a></h2>
<p>{{ verdict|join("<br>"|safe) }}</p>
{% endfor %}
</body>
</html>
"""


def write(site: Path) -> Path:
    """Write the front page; return its path.

    Args:
        site: Folder with a folder for each report.

    Raises:
        SystemExit: If no report has a page.
    """
    verdicts = {page.parent.name: _verdict(page) for page in sorted(site.glob("*/index.html"))}
    if not verdicts:
        sys.exit(f"no report in {site} has an index.html; synthbench report --out {site}/NAME writes one")
    front = Environment(autoescape=True).from_string(_FRONT).render(reports=verdicts)
    (site / "index.html").write_text(front, encoding="utf-8")
    return site / "index.html"


def _verdict(page: Path) -> list[str]:
    """The lines of a page's verdict: what is best in every category."""
    found = re.search(r'<dl class="verdict">(.*?)</dl>', page.read_text(encoding="utf-8"), re.DOTALL)
    lines = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", found[1]) if found else []
    return [unescape(re.sub(r"<[^>]*>", "", ": ".join(filter(None, line)))) for line in lines]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/pages.py FOLDER")
    print(write(Path(sys.argv[1])))  # noqa: T201
