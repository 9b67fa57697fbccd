"""Checking a cut: what the report says, and each reason for a refusal."""

import copy

import pytest
import torch
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.models import CutError, CutReport, Split, build_model, check_cut


def check(device: nn.Module, server: nn.Module, batch_size: int = 4, **options: object) -> CutReport:
    return check_cut(Split(device, server), input_shape=(6,), classes=3, batch_size=batch_size, **options)


class Forward(nn.Module):
    """A module with one layer and the forward that a test is about."""

    def __init__(self, layer: nn.Module, forward: object) -> None:
        super().__init__()
        self.layer = layer
        self.run = forward

    def forward(self, x: Tensor) -> object:
        return self.run(self.layer, x)


def test_the_report_counts_what_is_on_either_side_and_what_crosses() -> None:
    device = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    report = check(device, nn.Linear(5, 3), batch_size=4)
    assert report.activation_shape == (4, 5)
    assert report.activation_bytes == 4 * 5 * 4
    assert report.activation_dtype == torch.float32
    assert (report.device.parameters, report.server.parameters) == (6 * 5 + 5 + 2 * 5, 5 * 3 + 3)
    assert (report.device.buffers, report.server.buffers) == (2 * 5 + 1, 0)
    assert (report.device.flops, report.server.flops) == (2 * 4 * 6 * 5, 2 * 4 * 5 * 3)


def test_vgg16_at_the_papers_cut_and_batch_sends_four_mebibytes() -> None:
    split = build_model("vgg16", classes=10, input_shape=(3, 32, 32), cut=4)
    report = check_cut(split, input_shape=(3, 32, 32), classes=10, batch_size=2)
    assert report.activation_shape == (2, 128, 8, 8)
    assert report.activation_bytes * 64 == 4 * 2**20
    assert report.device.parameters + report.server.parameters == 14_714_688 + 512 * 10 + 10


def test_the_check_leaves_no_trace() -> None:
    split = build_model("small", classes=3, input_shape=(1, 8, 8), norm="batch", dropout=0.5)
    split.device.eval()
    split.server.get_parameter("classifier.weight").grad = torch.ones(3, 256)
    before = copy.deepcopy((split.device.state_dict(), split.server.state_dict()))
    generator = torch.get_rng_state()
    check_cut(split, input_shape=(1, 8, 8), classes=3, batch_size=4, twice=True)
    assert torch.equal(torch.get_rng_state(), generator)
    for part, kept in zip((split.device, split.server), before, strict=True):
        assert all(torch.equal(value, kept[name]) for name, value in part.state_dict().items())
    assert not any(part.training for part in split.device.modules())
    assert all(part.training for part in split.server.modules())
    grads = {name: p.grad for part in (split.device, split.server) for name, p in part.named_parameters()}
    assert torch.equal(grads.pop("classifier.weight"), torch.ones(3, 256))
    assert set(grads.values()) == {None}


def test_a_refused_part_is_left_without_a_trace_too() -> None:
    norm = nn.BatchNorm1d(6)
    with pytest.raises(CutError, match="client-side model fails"):
        check(nn.Sequential(norm, nn.Linear(5, 3)), nn.Linear(3, 3))
    assert norm.num_batches_tracked == 0


def test_double_precision_parts_are_checked_in_double_precision() -> None:
    report = check(nn.Linear(6, 5).double(), nn.Linear(5, 3).double())
    assert report.activation_bytes == 4 * 5 * 8


def test_a_device_part_that_fails_on_the_batch() -> None:
    with pytest.raises(CutError, match="client-side model fails on a batch of shape 4×6"):
        check(nn.Linear(7, 5), nn.Linear(5, 3))


def test_a_server_part_that_fails_on_the_activations() -> None:
    with pytest.raises(CutError, match="server-side model fails on activations of shape 4×5"):
        check(nn.Linear(6, 5), nn.Linear(8, 3))


@pytest.mark.parametrize("server", [nn.Linear(5, 4), nn.Sequential(nn.Linear(5, 3), nn.Flatten(0))])
def test_logits_of_another_shape(server: nn.Module) -> None:
    with pytest.raises(CutError, match="needs logits of shape 4×3"):
        check(nn.Linear(6, 5), server)


def test_classes_instead_of_logits() -> None:
    server = Forward(nn.Linear(5, 3), lambda layer, x: layer(x).argsort(1))
    with pytest.raises(CutError, match="return logits"):
        check(nn.Linear(6, 5), server)


@pytest.mark.parametrize(
    "server",
    [
        nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)),
        nn.Sequential(nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(5, 3)),
        Forward(nn.Linear(5, 3), lambda layer, x: layer(x.mul_(1))),
        Forward(nn.Linear(5, 3), lambda layer, x: layer(x.data.mul_(2))),
    ],
    ids=["relu", "relu on a view", "no change of value", "behind autograd's back"],
)
def test_a_server_that_overwrites_the_activations(server: nn.Module) -> None:
    with pytest.raises(CutError, match=r"server-side model overwrites the activations.*inplace=False"):
        check(nn.Linear(6, 5), server)


def test_a_device_that_overwrites_its_batch() -> None:
    with pytest.raises(CutError, match="client-side model overwrites the batch"):
        check(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 5)), nn.Linear(5, 3))


def test_in_place_operations_away_from_the_cut_are_fine() -> None:
    device = nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True))
    server = nn.Sequential(nn.Linear(5, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    assert check(device, server).activation_shape == (4, 5)


def test_batch_norm_on_batches_of_one() -> None:
    device = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    with pytest.raises(CutError, match=r"1 is a BatchNorm.*GroupNorm"):
        check(device, nn.Linear(5, 3), batch_size=1)
    assert check(device, nn.Linear(5, 3), batch_size=2).activation_shape == (2, 5)


def test_batches_of_one_without_batch_norm_are_fine() -> None:
    assert check(nn.Linear(6, 5), nn.Linear(5, 3), batch_size=1).activation_shape == (1, 5)


@pytest.mark.parametrize(
    "forward", [lambda layer, x: layer(x).squeeze(), lambda layer, x: layer(x).view(-1, 4, 5)[0]]
)
def test_a_part_that_loses_a_single_sample(forward: object) -> None:
    with pytest.raises(CutError, match="a single sample does not pass"):
        check(Forward(nn.Linear(6, 5), forward), nn.Linear(5, 3))


def test_a_batch_of_nothing() -> None:
    with pytest.raises(InputError, match="1 or more"):
        check(nn.Linear(6, 5), nn.Linear(5, 3), batch_size=0)


def test_a_parameter_without_a_gradient_is_named() -> None:
    server = nn.Linear(5, 3)
    server.register_parameter("forgotten", nn.Parameter(torch.zeros(2)))
    with pytest.raises(CutError, match="server-side model no gradient reaches forgotten"):
        check(nn.Linear(6, 5), server)
    server.get_parameter("forgotten").requires_grad_(False)
    assert check(nn.Linear(6, 5), server).server.parameters == 20


def test_a_device_part_through_which_no_gradient_flows() -> None:
    device = Forward(nn.Linear(6, 5), lambda layer, x: layer(x).detach())
    with pytest.raises(CutError, match="no gradient flows through the client-side model"):
        check(device, nn.Linear(5, 3))
    device.requires_grad_(False)
    assert check(device, nn.Linear(5, 3)).activation_shape == (4, 5)


@pytest.mark.parametrize("forward", [lambda layer, x: layer(x.detach()), lambda layer, x: layer(x).detach()])
def test_a_server_part_that_returns_no_gradient(forward: object) -> None:
    with pytest.raises(CutError, match="server-side model"):
        check(nn.Linear(6, 5), Forward(nn.Linear(5, 3), forward))


def test_a_parameter_in_both_parts() -> None:
    layer = nn.Linear(6, 6)
    with pytest.raises(CutError, match="untie"):
        check(layer, nn.Sequential(layer, nn.Linear(6, 3)))


def test_a_tied_weight_under_another_wrapper() -> None:
    device = nn.Linear(6, 3)
    tied = nn.Linear(6, 3)
    tied.weight = nn.Parameter(device.weight.data)
    server = Forward(tied, lambda layer, x: x @ layer.weight[:, :3] + layer.bias)
    with pytest.raises(CutError, match=r"layer\.weight"):
        check(device, server)


def test_a_lazy_layer() -> None:
    with pytest.raises(CutError, match=r"weight in the server-side model has no size yet"):
        check(nn.Linear(6, 5), nn.LazyLinear(3))


def test_a_recurrent_layer_that_also_returns_its_state() -> None:
    with pytest.raises(CutError, match="gives a tuple"):
        check(nn.GRU(6, 5), nn.Linear(5, 3))


def test_activations_that_are_whole_numbers() -> None:
    with pytest.raises(CutError, match="int64"):
        check(Forward(nn.Linear(6, 5), lambda layer, x: layer(x).long()), nn.Linear(5, 3))


def test_activations_without_the_batch_in_front() -> None:
    with pytest.raises(CutError, match="shape 5×4"):
        check(Forward(nn.Linear(6, 5), lambda layer, x: layer(x).T), nn.Linear(4, 3))


def test_fused_attention_has_no_second_derivative() -> None:
    def attend(layer: nn.Module, x: Tensor) -> Tensor:
        tokens = x.view(-1, 1, 2, 8)
        return layer(nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).flatten(1))

    parts = nn.Linear(6, 16), Forward(nn.Linear(16, 3), attend)
    assert check(*parts).activation_shape == (4, 16)
    with pytest.raises(CutError, match="write fused attention out"):
        check(*parts, twice=True)


def test_every_refusal_is_an_input_error() -> None:
    assert issubclass(CutError, InputError)
