"""Pages that `make check` does not check are what their scripts write."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUDIES = ("error_rates/page.py", "papers/page.py", "papers/positions/page.py")
SLOW = ("docs/first_verdict.py", *(f"studies/{study}" for study in STUDIES))


@pytest.mark.parametrize(
    "script",
    ["studies/papers/fidelity/compare.py", *(pytest.param(script, marks=pytest.mark.end_to_end) for script in SLOW)],
)
def test_a_page_is_what_its_script_writes(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--check"])

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")

    assert not ended.value.code, f"without --check, {script} writes it anew: {capsys.readouterr().out}"
