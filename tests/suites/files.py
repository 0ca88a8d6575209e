"""Files of suites that are packaged ones but for some tables and settings."""

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path


def suite_file(
    path: Path,
    of: str,
    tasks: Iterable[str] = (),
    mechanisms: Iterable[str] = (),
    **settings: object,
) -> Path:
    """Write a packaged suite as one called like the file.

    Args:
        path: Where.
        of: The packaged suite.
        tasks: Other ones, each a name or a line of the file.
        mechanisms: The same.
        settings: As they stand in a file, by their keys; None leaves one out.
    """
    text = files("synthbench.suites").joinpath(f"{of}.toml").read_text(encoding="utf-8")
    for key, value in {"name": f'"{path.stem}"', **settings}.items():
        line = "" if value is None else f"{key} = {value}\n"
        text = re.sub(rf"(?m)^{key} = .*\n", line, text, count=1)
    for table, names in {"tasks": tasks, "mechanisms": mechanisms}.items():
        lines = "".join(f"{name}\n" if "=" in name else f"{name} = {{}}\n" for name in names)
        text = re.sub(rf"(?ms)^\[{table}\].*?(?=^\[|\Z)", f"[{table}]\n{lines}\n", text) if lines else text
    path.write_text(re.sub(r"(?ms)^quick = \[.*?\]\n", "", text) if tasks else text, encoding="utf-8")
    return path
