"""Keep a folder up to date with the files of a report."""

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from synthbench.errors import StoreError
from synthbench.reports.render.figures.drawing import PICTURES, mark_in

INDEX = ".generated"
"""Name of the file that lists the files of a report. Writing the next report removes the listed files that it lacks."""

Files = Mapping[str, str | bytes]
"""Text or bytes by file name, which may include one folder, as in ``figures/ranks.svg``."""


def write(files: Files, folder: Path) -> list[str]:
    """Bring a report's folder up to date: write changed files, and remove files that only an earlier report had.

    Files that no report wrote are not touched. A folder without a report must have no other file under a name of the
    new one. The folder is created if it does not exist.

    Returns:
        Names of the files that were written or removed, in alphabetical order.

    Raises:
        StoreError: If the folder is a file, or if something in it cannot be written or is not of a report.
    """
    wanted = _with_index(files)
    changed = _differing(wanted, folder, lambda _name, content, present: content == present)
    taken = [] if (folder / INDEX).exists() else [name for name in changed if (folder / name).exists()]
    if taken:
        raise StoreError(f"{folder} has a file {taken[0]!r} that no report wrote; name another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in ((folder / name, wanted.get(name)) for name in changed):
            if content is not None:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
                continue
            path.unlink()
            if path.parent != folder and not any(path.parent.iterdir()):
                path.parent.rmdir()
    except OSError as problem:
        reason = "not a folder" if isinstance(problem, FileExistsError | NotADirectoryError) else problem.strerror
        raise StoreError(f"cannot write the report to {folder}: {reason}; name another folder with --out") from None
    return changed


def stale(files: Files, folder: Path) -> list[str]:
    """List files that are out of date: missing in the folder, different from ``files``, or left from an earlier report.

    Files are compared byte by byte. Pictures are compared by the numbers and words in them instead, because their bytes
    depend on the version of matplotlib.
    """

    def is_as_good(name: str, content: bytes, present: bytes | None) -> bool:
        if present is None or Path(name).suffix.removeprefix(".") not in PICTURES:
            return content == present
        return mark_in(content) == mark_in(present) is not None

    return _differing(_with_index(files), folder, is_as_good)


def _differing(
    wanted: Mapping[str, bytes], folder: Path, is_good: Callable[[str, bytes, bytes | None], bool]
) -> list[str]:
    different = {name for name, content in wanted.items() if not is_good(name, content, _content(folder / name))}
    # Names in the folder's index, except those outside the folder or more than one folder deep.
    index = (_content(folder / INDEX) or b"").decode(errors="replace").splitlines()
    left = {name for name in index if _is_inside(folder, name) and name not in wanted and (folder / name).is_file()}
    return sorted(different | left)


def _with_index(files: Files) -> dict[str, bytes]:
    contents = {**files, INDEX: "".join(f"{name}\n" for name in sorted(files))}
    return {name: content.encode() if isinstance(content, str) else content for name, content in contents.items()}


def _is_inside(folder: Path, name: str) -> bool:
    parts = PurePosixPath(name).parts
    is_plain = "/".join(parts) == name and "\\" not in name and "\0" not in name and not {"..", "/"}.intersection(parts)
    # A folder that is a link may lead anywhere.
    return is_plain and len(parts) in (1, 2) and not (len(parts) == 2 and (folder / parts[0]).is_symlink())


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
