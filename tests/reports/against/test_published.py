from synthbench.reports.against.published import (
    causes,
    published_arguments,
    published_name,
    published_order,
    table3,
    table8,
)
from synthbench.reports.selection import EXTRA
from synthbench.suites import EXTRA as OF_SUITES
from synthbench.suites import load_suite


def test_table_8_has_154_cells_of_which_147_have_a_number() -> None:
    assert len(table8()) == 22 * 7
    missing = [cell for cell in table8() if cell.mean is None]
    assert len(table8()) - len(missing) == 147
    assert {cell.task for cell in missing} == {"bigram"}
    assert all((cell.mean is None) == (cell.std is None) for cell in table8())


def test_the_published_order_begins_with_softmax() -> None:
    assert list(published_order("mechanism")) == [
        published_name(name)
        for name in ("softmax", "yat-spherical", "performer", "linear", "slay", "slay-laplace", "slay-hadamard")
    ]


def test_table_3_is_table_8_averaged_to_within_its_rounding() -> None:
    assert len(table3()) == 7 * 5
    for average in table3():
        means = [
            cell.mean
            for cell in table8()
            if (cell.category, cell.mechanism) == (average.category, average.mechanism) and cell.mean is not None
        ]
        # Both tables are rounded, so they may lie one printed digit apart.
        assert abs(sum(means) / len(means) - average.mean) <= 0.0101


def test_every_cause_belongs_to_a_published_cell() -> None:
    assert set(causes()) <= {(cell.task, cell.mechanism) for cell in table8()}
    assert all(causes().values())


def test_what_reports_know_of_suites_is_what_suites_say() -> None:
    protocol = {published_name(name): options for name, options in load_suite("paper").mechanisms.items()}

    assert published_arguments() == protocol
    assert EXTRA == OF_SUITES
