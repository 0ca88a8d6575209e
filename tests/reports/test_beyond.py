"""The table of skills beyond the trained length, which only rows that have such tests show."""

import json

import pandas as pd

from synthbench.reports.build import build
from synthbench.reports.cells import grid
from synthbench.reports.table import NOTHING, beyond_table
from tests.reports._made import climbed, make_frame

Skills = tuple[float | None, float | None]


def with_skills(rows: pd.DataFrame, skills: dict[tuple[str, int], Skills]) -> pd.DataFrame:
    """The rows with the skills of some runs at 2 and 4 times the length, by mechanism and seed."""

    def metrics_of(mechanism: str, seed: int, metrics: str) -> str:
        found = dict(zip((2, 4), skills.get((mechanism, seed), ()), strict=False))
        named = {f"x{factor}.length": 64.0 * factor for factor in found}
        return json.dumps(json.loads(metrics) | named | {f"x{factor}.skill": skill for factor, skill in found.items()})

    return rows.assign(metrics=list(map(metrics_of, rows["mech"], rows["seed"], rows["metrics"])))


def printed(rows: pd.DataFrame) -> dict[str, list[str]]:
    table = beyond_table(grid(rows))
    assert table is not None
    assert [column.label for column in table.columns] == ["Tasks", "longest trained", "2 x", "4 x"]
    return {line.labels[0]: [cell.value for cell in line.cells] for line in table.lines}


def test_skills_are_averaged_over_the_seeds_that_have_them() -> None:
    rows = climbed({"softmax": [11, 11, 5], "linear": [10.5, None, 3]})
    skills: dict[tuple[str, int], Skills] = {("softmax", 42): (0.5, -0.25), ("softmax", 43): (1.25, 0.5)}
    assert printed(with_skills(rows, skills)) == {"Softmax": ["1", "1.00", "0.75", "0.25"]}
    skills[("linear", 42)] = (None, None)
    assert list(printed(with_skills(rows, skills)).values())[-1] == ["1", "0.50", NOTHING, NOTHING]


def test_the_page_is_written_in_markdown_and_latex() -> None:
    rows = with_skills(climbed({"softmax": [11, 11]}), {("softmax", 42): (0.5, 0.25)})
    files = build(rows, None, "core", formats=["pages"])
    assert "| Softmax" in str(files["beyond.md"])
    assert "Beyond the trained length" in str(files["beyond.tex"])


def test_sizes_without_a_ladder_keep_their_columns() -> None:
    assert beyond_table(grid(make_frame({"softmax": [0.5]}, metrics='{"x2.length": 64.0, "x2.skill": 0.5}'))) is None
