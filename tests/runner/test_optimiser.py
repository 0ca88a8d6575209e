import torch
from torch import nn

from synthbench.runner.optimiser import MemberAdamW, make_optimiser
from synthbench.suites import load_suite

SETTINGS = load_suite("paper").training
RATES = [1e-1, 1e-2, 1e-3]


def trajectory(rates: list[float]) -> torch.Tensor:
    """A parameter [members, 4] after ten steps on a quadratic bowl whose centre differs by member."""
    centre = torch.arange(len(RATES) * 4, dtype=torch.float64).view(-1, 4).sin()[: len(rates)]
    parameter = nn.Parameter(torch.ones(len(rates), 4, dtype=torch.float64))
    optimiser = make_optimiser([parameter], rates, SETTINGS)
    for _ in range(10):
        optimiser.zero_grad()
        torch.autograd.backward(((parameter - centre) ** 2).sum())
        optimiser.step()
    return parameter.detach()


def test_one_rate_for_all_is_the_fused_optimiser() -> None:
    assert isinstance(make_optimiser([nn.Parameter(torch.ones(2, 1))], [0.1, 0.1], SETTINGS), torch.optim.AdamW)


def test_a_rate_for_each_member_is_adamw_for_each_member() -> None:
    together = trajectory(RATES)
    centre = torch.arange(len(RATES) * 4, dtype=torch.float64).view(-1, 4).sin()
    for member, rate in enumerate(RATES):
        parameter = nn.Parameter(torch.ones(4, dtype=torch.float64))
        alone = torch.optim.AdamW(
            [parameter], lr=rate, betas=SETTINGS.betas, eps=SETTINGS.eps, weight_decay=SETTINGS.weight_decay
        )
        for _ in range(10):
            alone.zero_grad()
            torch.autograd.backward(((parameter - centre[member]) ** 2).sum())
            alone.step()
        torch.testing.assert_close(together[member], parameter.detach(), rtol=1e-12, atol=1e-14)


def test_a_parameter_without_gradient_stays() -> None:
    parameter = nn.Parameter(torch.ones(2, 3))
    MemberAdamW([parameter], [0.1, 0.2], SETTINGS).step()

    assert (parameter == 1).all()
