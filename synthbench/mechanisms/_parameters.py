"""Parameters of foreign modules: which are used at a length, and all of them away from special values."""

import torch
from torch import Tensor, nn

from synthbench.layers import Mixer
from synthbench.mechanisms._module import without_compilation

SPREAD = 0.1
"""Standard deviation of the factor, around 1, by which a parameter is changed."""
STEP = 0.02
"""Standard deviation of what takes the place of a zero; GPT-2 draws its weights from this."""


@torch.no_grad()
def perturb(module: nn.Module) -> None:
    """Move trained parameters a little, in place, as training would: no zero and no symmetry then hides anything.

    A gate, an output projection or a low-rank factor that begins at zero makes an output constant, and a constant
    passes any test for leaks.
    """
    for index, parameter in enumerate(module.parameters()):
        if not parameter.requires_grad:
            continue
        generator = torch.Generator().manual_seed(index)
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        parameter.copy_(torch.where(parameter == 0, STEP * noise, parameter * (1 + SPREAD * noise)))


def unused_parameters(mixer: Mixer, x: Tensor) -> list[str]:
    """Names of the trained parameters on which no output depends.

    Args:
        mixer: A mechanism of one run; its parameters are moved a little.
        x: Inputs, [batch, length, width].
    """
    perturb(mixer)
    with torch.enable_grad(), without_compilation():
        torch.autograd.backward(mixer(x.detach().requires_grad_()).square().mean())
    return [
        name
        for name, parameter in mixer.named_parameters()
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.any())
    ]
