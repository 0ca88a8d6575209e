"""Table 1 of the SLAY paper, computed from the mechanisms."""

from typing import NamedTuple

from synthbench.mechanisms.slay._base import ProductAttention
from synthbench.mechanisms.slay.slay import Slay
from synthbench.mechanisms.slay.slay_exact import SlayExact
from synthbench.mechanisms.slay.slay_maclaurin import SlayMaclaurin
from synthbench.mechanisms.slay.slay_nystrom import SlayNystrom
from synthbench.mechanisms.slay.slay_tensorsketch import SlayTensorsketch

POLYNOMIALS: tuple[type[ProductAttention], ...] = (SlayExact, SlayTensorsketch, SlayMaclaurin, SlayNystrom, Slay)
"""In the order of the table's rows."""


class Row(NamedTuple):
    """One way to the polynomial factor x² of the kernel."""

    mechanism: str
    dimension: str
    feature_cost: str
    is_unbiased: bool
    is_positive: bool


def table_1() -> list[Row]:
    """The polynomial factors: width, cost for one vector, whether unbiased, whether never negative.

    It differs from the paper's in the exact map, which keeps each product once and so has d (d + 1) / 2 entries, not
    d². TensorSketch and Nyström are both "approximately" unbiased there; the first is unbiased exactly, the second is
    biased. The whitening of Nyström costs P² more.

    Source: Luna et al. (2026), table 1.
    """
    return [Row(unit.name, unit.dimension, unit.feature_cost, unit.unbiased, unit.positive) for unit in POLYNOMIALS]
