import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from synthbench.bench import context, fidelity, report, scaling, suite
from synthbench.bench.fidelity import CPU
from synthbench.bench.rows import Table
from synthbench.cli.app import app
from synthbench.reports.folder import Files


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows of one device, some measured and some made up."""
    folder, how = tmp_path_factory.mktemp("rows") / "a-device", {"batch_size": 1, "dtype": "float32"}
    table = Table(scaling.IDENTITY, CPU, folder / "scaling.parquet")
    sizes: dict[str, Any] = {"num_repeats": 1, "limits": scaling.Limits(1e6, 1e6), **how}
    forms = ["layer", "attend", "gram", "dense"]
    assert list(scaling.measure({"linear": {}, "softmax": {}}, [16, 32], table, forms=forms, **sizes))
    table.add({**table.rows[0], "form": "gram", "length": 64, "status": "oom", "median_ms": None})
    table = Table(fidelity.IDENTITY, CPU, folder / "fidelity.parquet")
    for estimator, error in (("mean", 0.64), ("slay", 0.67)):
        errors = {"rel_l2": error, "cosine": 0.5, "mse": 0.1, "latency_ms": 1.0}
        table.add({"budget": "small", "estimator": estimator, "bias": True, "seed": 0, **errors})
    table = Table(context.IDENTITY, CPU, folder / "context.parquet")
    tried: dict[str, Any] = {"gigabytes": 1.0, "longest": 256, "max_seconds": 1e6, **how}
    assert list(context.measure({"identity": {}}, table, **tried))
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


def test_tables_and_figures_say_what_the_rows_say(files: Files) -> None:
    page = str(files["README.md"])

    assert "| linear      | layer  |                 32 |" in page
    assert "On every line: longest, forward+backward = 32." in page
    assert "On every line: form = attend; against = dense." in page
    assert "| slay        | 0.67           |" in page
    assert re.search(r"\| identity +\| .*\| +256 \| +256 \|", page)
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
    shutil.copy(rows / "fidelity.parquet", device)
    arguments = device.parent, "--out", str(out)

    assert bench_report(*arguments, "--check").exit_code == 1
    first, again = bench_report(*arguments), bench_report(*arguments)
    assert str(out / "a-device" / "README.md") in first.stdout.split()
    assert again.stdout == ""
    assert bench_report(*arguments, "--check").exit_code == 0
    (out / "a-device" / "fidelity.csv").write_text("edited")
    assert bench_report(*arguments, "--check").exit_code == 1
