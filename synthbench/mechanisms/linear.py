"""Linear attention."""

from typing import ClassVar

from torch.nn.functional import elu

from synthbench.forms.shapes import KeyRows
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism


@mechanism
class Linear(FeatureAttention):
    r"""Linear attention with the feature map :math:`\phi(x) = elu(x) + 1`.

    State: ``key_dim * (value_dim + 1)`` numbers per head, whatever the length.

    Source: Katharopoulos et al. (2020), eq. 9. Unlike in the paper, the denominator is kept away from 0: see the
    options ``guard`` and ``delta``.
    """

    name: ClassVar = "linear"
    label: ClassVar = "Linear"
    family: ClassVar = "linear"
    source: ClassVar = "katharopoulos2020linear"
    complexity: ClassVar = "T d^2"

    def features(self, x: KeyRows, side: Side) -> KeyRows:  # noqa: ARG002 - both sides alike
        """Compute one positive feature per channel."""
        return elu(x) + 1
