import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from synthbench.bench import report, scaling, suite
from synthbench.bench.rows import Table
from synthbench.cli.app import app
from synthbench.reports.folder import Files
from tests.training.cells import CPU


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows of one device, some measured and some made up."""
    folder = tmp_path_factory.mktemp("rows") / "a-device"
    table = Table(scaling.IDENTITY, CPU, folder / "scaling.parquet")
    sizes: dict[str, Any] = {"batch_size": 1, "dtype": "float32", "num_repeats": 1, "limits": scaling.Limits(1e6, 1e6)}
    assert list(scaling.measure({"linear": {}}, [16, 32], table, forms=["layer", "attend", "gram"], **sizes))
    table.add({**table.rows[0], "form": "gram", "length": 64, "status": "oom", "median_ms": None})
    table = Table(suite.IDENTITY, CPU, folder / "suite.parquet")
    for runs in (1, 4):
        rates = dict.fromkeys(suite.SHOWN) | {"mechanism": "linear", "length": 32, "members": runs}
        table.add({**rates, "rates": 1, "num_steps": 5, "loop": 10.0, "batched": 9.0 * runs, "captured": 100.0})
    return folder


@pytest.fixture(scope="module")
def files(rows: Path) -> Files:
    """The report of the rows."""
    return report.build(rows)


def bench_report(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "report", "--rows", str(folder), *arguments])


def test_figures_are_of_what_has_rows_and_a_length_that_did_not_fit_is_named(files: Files) -> None:
    """Tables are compared with those of committed rows by ``make check``."""
    page = str(files["README.md"])

    assert page.count("oom") == 1  # the form of which the longest length that was tried did not fit
    stems = {name.partition(".")[0] for name in files if name.startswith("figures/")}
    of_times = product(("layers", "forms-linear"), ("forward", "forward-backward"))
    assert stems == {"figures/runs-32", *(f"figures/{what}-{way}-float32-batch-1" for what, way in of_times)}
    for stem in stems:
        assert {f"{stem}.{kind}" for kind in ("svg", "pdf", "csv")} <= set(files)
        assert f"({stem}.svg)" in page
    assert "captured,linear,4,100" in str(files["figures/runs-32.csv"]).splitlines()


def test_a_figure_has_every_form_that_has_rows() -> None:
    forms = {"gram", "chunked", "streamed", "recurrent", "kernel", "published"}
    costs = {"length": 16, "median_ms": 1.0, "peak_bytes": 1, "tokens_per_s": 1.0}

    drawing = report._of_forms([{"mechanism": "slay", "form": form, **costs} for form in forms], "slay", "forward", "")

    assert drawing is not None
    assert forms <= set(re.findall(r"\w+", drawing.numbers))


def test_the_same_rows_give_the_same_bytes(rows: Path, files: Files, tmp_path: Path) -> None:
    shutil.copy(rows / "suite.parquet", tmp_path)
    again = report.build(tmp_path)

    assert "figures/runs-32.pdf" in again
    assert all(files[name] == content for name, content in again.items() if name.startswith("figures/"))


def test_a_report_is_written_once_and_checked(rows: Path, tmp_path: Path) -> None:
    device, out = tmp_path / "rows" / "a-device", tmp_path / "reports"
    device.mkdir(parents=True)
    shutil.copy(rows / "suite.parquet", device)
    arguments = device.parent, "--no-figures", "--out", str(out)

    assert bench_report(*arguments, "--check").exit_code == 1
    first, again = bench_report(*arguments), bench_report(*arguments)
    assert str(out / "a-device" / "README.md") in first.stdout.split()
    assert again.stdout == ""
    assert bench_report(*arguments, "--check").exit_code == 0
    (out / "a-device" / "suite.csv").write_text("edited")
    assert bench_report(*arguments, "--check").exit_code == 1
