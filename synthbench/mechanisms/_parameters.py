"""Functions that perturb a module's parameters, and find the parameters that no output depends on."""

import torch
from torch import Tensor, nn

from synthbench.layers import Mixer
from synthbench.mechanisms._module import without_compilation

SPREAD = 0.1
"""Standard deviation of the factor, with mean 1, by which a parameter is multiplied."""
STEP = 0.02
"""Standard deviation of the values that replace zeros, equal to that of GPT-2's initial weights."""
SCALES = (1.0, 3.0, 10.0)
"""Factors of the random tokens in the further batches of :func:`unused_parameters`, one factor per batch."""
AT_ONCE = 4096
"""Approximate number of tokens in each of these batches."""


@torch.no_grad()
def perturb(module: nn.Module) -> None:
    """Change trained parameters slightly, in place, so that zeros and symmetries cannot hide what an output depends on.

    For example, an output is constant if a gate, an output projection or a low-rank factor begins at zero. A constant
    output would pass any test of causality.
    """
    for index, parameter in enumerate(module.parameters()):
        if not parameter.requires_grad:
            continue
        generator = torch.Generator().manual_seed(index)
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        parameter.copy_(torch.where(parameter == 0, STEP * noise, parameter * (1 + SPREAD * noise)))


def unused_parameters(mixer: Mixer, x: Tensor) -> list[str]:
    """List the names of the trained parameters on which no output depends, in any of several different batches.

    If a parameter gets no gradient from the first batch, further batches are tried. Their sequences differ in direction
    and size, so that a router may also use experts that the first batch did not reach.

    Args:
        mixer: A mechanism for a single run, that is, without a run axis. Its parameters are changed slightly, in place.
        x: Inputs of the first batch, [batch, length, width]; further batches have more sequences of this length.
    """
    perturb(mixer)
    unused = [name for name, parameter in mixer.named_parameters() if parameter.requires_grad]
    generator = torch.Generator().manual_seed(0)
    shape = (max(1, AT_ONCE // x.shape[1]), *x.shape[1:])
    for scale in (0, *SCALES):
        if scale:
            common, own = (torch.randn(size, generator=generator) for size in ((shape[0], 1, shape[-1]), shape))
            x = (scale * (common + own)).to(x)
        with torch.enable_grad(), without_compilation():
            torch.autograd.backward(mixer(x.detach().requires_grad_()).square().mean())
        gradients = {name: mixer.get_parameter(name).grad for name in unused}
        unused = [name for name, gradient in gradients.items() if gradient is None or not gradient.any()]
        if not unused:
            break
    return unused
