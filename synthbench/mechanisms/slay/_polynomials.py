"""Table 1 of the SLAY paper (Luna et al., 2026), computed from the mechanisms."""

from typing import NamedTuple

from synthbench.mechanisms.slay._base import ProductAttention
from synthbench.mechanisms.slay.slay import Slay
from synthbench.mechanisms.slay.slay_exact import SlayExact
from synthbench.mechanisms.slay.slay_maclaurin import SlayMaclaurin
from synthbench.mechanisms.slay.slay_nystrom import SlayNystrom
from synthbench.mechanisms.slay.slay_tensorsketch import SlayTensorsketch

POLYNOMIALS: tuple[type[ProductAttention], ...] = (SlayExact, SlayTensorsketch, SlayMaclaurin, SlayNystrom, Slay)
"""The mechanisms of the table, in the order of its rows."""


class Row(NamedTuple):
    """A row of table 1 of the SLAY paper: one way to compute features for the polynomial factor x² of the kernel."""

    mechanism: str
    dimension: str
    feature_cost: str
    is_unbiased: bool
    is_positive: bool


def table_1() -> list[Row]:
    """Return one row per polynomial factor (features for x², the squared cosine of query and key).

    A row holds the factor's width and its cost per vector. It also says whether the factor is unbiased, and whether
    kernel values are never negative.

    The table differs from the paper's table in three points. The exact map keeps each product of two coordinates once
    and so has d (d + 1) / 2 entries, not d². The paper calls both TensorSketch and Nyström "approximately" unbiased;
    TensorSketch is exactly unbiased, and Nyström is biased. Whitening adds P² to the cost of Nyström.

    Source: Luna et al. (2026), table 1.
    """
    return [Row(unit.name, unit.dimension, unit.feature_cost, unit.unbiased, unit.positive) for unit in POLYNOMIALS]
