"""Class balance: in the server's loss every class counts the same."""

import pytest
import torch
import torch.nn.functional as F

from gapsl.options.balance import SMALLEST_SHARE, BalancedCrossEntropy, class_shares


def test_shares_are_those_of_devices_that_send_equally_much():
    assert class_shares([(10, 0), (100, 300)]).tolist() == pytest.approx([0.625, 0.375])


def test_weights_are_one_on_average_and_inverse_to_the_shares():
    loss = BalancedCrossEntropy([(10, 0), (100, 300)])
    shares = class_shares([(10, 0), (100, 300)])
    assert float((loss.weights * shares).sum()) == pytest.approx(1)
    assert float(loss.weights[1] / loss.weights[0]) == pytest.approx(0.625 / 0.375)


def test_equal_shares_give_the_plain_loss():
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    loss = BalancedCrossEntropy([(5, 5, 0), (0, 0, 7), (4, 4, 0)])  # each class a third
    assert loss(logits, labels, 0).item() == pytest.approx(F.cross_entropy(logits, labels).item())


def test_a_batch_of_one_class_keeps_its_weight():
    """torch's own class weights divide by their sum in the batch, and would cancel exactly here."""
    logits = torch.randn(4, 2)
    loss = BalancedCrossEntropy([(90, 10)])
    ones, zeros = torch.ones(4, dtype=torch.long), torch.zeros(4, dtype=torch.long)
    assert loss(logits, ones, 0).item() == pytest.approx(5 * F.cross_entropy(logits, ones).item(), rel=1e-5)
    assert loss(logits, zeros, 0).item() == pytest.approx(
        F.cross_entropy(logits, zeros).item() / 1.8, rel=1e-5
    )


def test_classes_that_are_next_to_absent_do_not_rule():
    loss = BalancedCrossEntropy([(10_000, 1, 0)])
    assert float(loss.weights.max() / loss.weights.min()) < 1.001 / SMALLEST_SHARE
