"""What pytest leaves out where it cannot be imported, and the modules whose shapes are checked while tests run.

Not ``--doctest-ignore-import-errors``: with that flag a test module that does not import is skipped, and nothing fails.
"""

from importlib.util import find_spec
from pathlib import Path

from jaxtyping import install_import_hook

collect_ignore_glob = [] if find_spec("triton") else ["synthbench/forms/kernels/_*.py"]

ROOT = Path(__file__).parent


def modules_with_shapes() -> list[str]:
    """Those of the package that annotate arrays; of the others mypy knows the types, and checks take as long again."""
    paths = [path for path in ROOT.glob("synthbench/**/*.py") if "jaxtyping" in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]


install_import_hook(modules_with_shapes(), "beartype.beartype")
