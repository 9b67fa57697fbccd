"""Prior calibration: label frequencies explained by the loss need not be learned."""

import pytest
import torch
import torch.nn.functional as F
from tiny import CLASSES

from gapsl.methods.server_model import cross_entropy
from gapsl.options.calibration import SMOOTHING, PriorCalibration, log_frequencies

LABELS = torch.tensor([0, 1, 2, 1, 0, 0])


def logits():
    torch.manual_seed(3)
    return torch.randn(len(LABELS), CLASSES, dtype=torch.float64, requires_grad=True)


def prior(counts, tau=1.0):
    return PriorCalibration(cross_entropy, classes=CLASSES, tau=tau, counts=counts)


def test_uniform_frequencies_give_the_plain_loss():
    x = logits()
    assert prior({0: (40, 40, 40)})(x, LABELS, 0).item() == pytest.approx(F.cross_entropy(x, LABELS).item())


def test_tau_zero_gives_the_plain_loss_to_the_bit():
    x = logits()
    assert torch.equal(prior({0: (100, 1, 0)}, tau=0.0)(x, LABELS, 0), F.cross_entropy(x, LABELS))


def test_its_value_is_the_cross_entropy_weighted_by_frequencies():
    """softmax(x + log p) is p_c exp(x_c) / sum of p exp(x): Bayes' rule with the device's own prior."""
    x, counts = logits(), torch.tensor([70.0, 25.0, 0.0])
    p = (1 - SMOOTHING) * counts.double() / counts.sum() + SMOOTHING / CLASSES
    weighted = p * x.exp()
    expected = -(weighted / weighted.sum(dim=1, keepdim=True)).gather(1, LABELS[:, None]).log().mean()
    assert prior({0: (70, 25, 0)})(x, LABELS, 0).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_its_gradient_is_the_shifted_softmax_minus_the_label(tau):
    x = logits()
    (gradient,) = torch.autograd.grad(prior({0: (70, 25, 0)}, tau)(x, LABELS, 0), x)
    shifted = (x + tau * log_frequencies(torch.tensor([70, 25, 0]))).softmax(dim=1)
    expected = (shifted - F.one_hot(LABELS, CLASSES)) / len(LABELS)
    assert torch.allclose(gradient, expected, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda x: prior({0: (70, 25, 0)}, tau)(x, LABELS, 0), x)


def test_a_model_that_only_knows_the_frequencies_is_taught_nothing_about_them():
    """With equal logits, labels at the device's own frequencies leave no gradient on the mean logit."""
    counts = (60, 30, 0)
    labels = torch.tensor([0] * 60 + [1] * 30)
    x = torch.zeros(90, CLASSES, dtype=torch.float64, requires_grad=True)
    (calibrated,) = torch.autograd.grad(prior({0: counts})(x, labels, 0), x)
    (plain,) = torch.autograd.grad(F.cross_entropy(x, labels), x)
    assert calibrated.sum(dim=0).abs().max() < 0.02  # what the smoothing leaves
    assert plain.sum(dim=0).abs().max() > 0.3


def test_every_device_has_its_own_frequencies():
    x, loss = logits(), prior({0: (90, 1, 1), 1: (1, 1, 90)})
    assert loss(x, LABELS, 0).item() != pytest.approx(loss(x, LABELS, 1).item(), rel=1e-3)


def test_counts_that_are_seen_equal_counts_that_are_declared():
    seen = prior(None)
    seen.see(0, torch.tensor([0, 0, 1]))
    seen.see(0, torch.tensor([1, 0]))
    seen.see(1, torch.tensor([2]))
    x = logits()
    assert torch.equal(seen(x, LABELS, 0), prior({0: (3, 2, 0)})(x, LABELS, 0))
    assert torch.equal(seen(x, LABELS, 1), prior({1: (0, 0, 1)})(x, LABELS, 1))


def test_before_anything_is_seen_all_classes_are_alike():
    x = logits()
    assert prior(None)(x, LABELS, 4).item() == pytest.approx(F.cross_entropy(x, LABELS).item())


def test_what_was_seen_survives_a_restart():
    first, second, x = prior(None), prior(None), logits()
    first.see(0, torch.tensor([0, 0, 1]))
    second.load_state(first.state())
    assert torch.equal(first(x, LABELS, 0), second(x, LABELS, 0))
    second.see(0, torch.tensor([2]))
    assert second.state() == {"0": [2, 1, 1]}


def test_it_shifts_the_logits_of_any_loss():
    def margins(logits, labels, device):
        return logits[:, 0].mean()

    loss = PriorCalibration(margins, classes=CLASSES, counts={0: (70, 25, 0)})
    x = logits()
    expected = x[:, 0].mean() + log_frequencies(torch.tensor([70, 25, 0]))[0]
    assert loss(x, LABELS, 0).item() == pytest.approx(expected.item())
