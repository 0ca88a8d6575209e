"""Pages of studies that `make check` does not check are what their scripts write."""

import runpy
import sys
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"
SLOW = ("error_rates/page.py", "papers/page.py", "papers/positions/page.py")


@pytest.mark.parametrize(
    "script",
    ["papers/fidelity/compare.py", *(pytest.param(script, marks=pytest.mark.end_to_end) for script in SLOW)],
)
def test_a_page_is_what_its_script_writes(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--check"])

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(STUDIES / script), run_name="__main__")

    assert not ended.value.code, f"without --check, {script} writes it anew: {capsys.readouterr().out}"
