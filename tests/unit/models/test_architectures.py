"""The models themselves: names, sizes, cuts, derivatives."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp

from gapsl.common.errors import InputError
from gapsl.models import MODELS, CutError, Split, build_model, check_cut
from gapsl.models.chains import mlp, small, vgg16
from gapsl.models.vit import SIZES, Size, ViT, vit

# Where torchvision's vgg16 and vgg16_bn have their 13 convolutions, written down from their state_dicts.
VGG16 = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]
VGG16_BN = [0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40]
CHANNELS = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
AFFINE = ["weight", "bias"]
RUNNING = ["running_mean", "running_var", "num_batches_tracked"]


def tiny_vit(depth: int = 4) -> ViT:
    return ViT(Size(16, depth, 2), classes=3, input_shape=(3, 8, 8), patch=4, dropout=0.0)


TINY = {
    "vgg16": lambda: vgg16(3, (3, 32, 32), width=0.125),
    "vgg16-batch": lambda: vgg16(3, (3, 32, 32), width=0.125, norm="batch"),
    "vgg16-group": lambda: vgg16(3, (3, 32, 32), width=0.125, norm="group"),
    "vit": tiny_vit,
    "small": lambda: small(3, (1, 8, 8)),
    "small-group": lambda: small(3, (1, 8, 8), norm="group"),
    "mlp": lambda: mlp(3, (1, 8, 8)),
}
INPUTS = {name: (3, 32, 32) if "vgg" in name else (3, 8, 8) if name == "vit" else (1, 8, 8) for name in TINY}
CUTS = [
    (name, cut) for name in TINY for cut in range(1, {"vgg": 13, "vit": 3, "sma": 3, "mlp": 2}[name[:3]] + 1)
]


@pytest.mark.parametrize(
    ("norm", "convolutions", "of_norm"),
    [("none", VGG16, []), ("batch", VGG16_BN, AFFINE + RUNNING), ("group", VGG16_BN, AFFINE)],
)
def test_vgg16_has_torchvisions_names_and_shapes(
    norm: str, convolutions: list[int], of_norm: list[str]
) -> None:
    with torch.device("meta"):
        state = vgg16(10, (3, 32, 32), norm=norm).state_dict()
    expected = {}
    for index, inputs, outputs in zip(convolutions, [3, *CHANNELS], CHANNELS, strict=False):
        expected[f"features.{index}.weight"] = (outputs, inputs, 3, 3)
        expected[f"features.{index}.bias"] = (outputs,)
        for name in of_norm:
            expected[f"features.{index + 1}.{name}"] = () if name == "num_batches_tracked" else (outputs,)
    expected |= {"classifier.0.weight": (10, 512), "classifier.0.bias": (10,)}
    assert {name: tuple(value.shape) for name, value in state.items()} == expected


def test_vgg16_has_the_well_known_number_of_parameters_in_its_convolutions() -> None:
    with torch.device("meta"):
        features = vgg16(10, (3, 32, 32)).features
    assert sum(parameter.numel() for parameter in features.parameters()) == 14_714_688


def test_vgg16_cut_4_is_torchvisions_features_up_to_10() -> None:
    model = vgg16(10, (3, 32, 32), width=0.125)
    parts = model.cut(4)
    assert [name for name, _ in parts.device.features.named_children()] == [str(index) for index in range(10)]
    assert isinstance(parts.device.features[9], nn.MaxPool2d)
    assert parts.device.state_dict().keys() == model.cut("features.9").device.state_dict().keys()


@pytest.mark.parametrize(
    ("cut", "last"), [(1, "1"), (2, "4"), (3, "6"), (4, "9"), (7, "16"), (12, "27"), (13, "30")]
)
def test_a_vgg_cut_takes_the_pool_along(cut: int, last: str) -> None:
    device = vgg16(10, (3, 32, 32), width=0.125).cut(cut).device
    assert list(dict(device.features.named_children()))[-1] == last


def test_vit_base_has_timms_names_and_shapes() -> None:
    with torch.device("meta"):
        state = vit("vit-base", 100, (3, 32, 32)).state_dict()
    block = {
        "norm1.weight": (768,), "norm1.bias": (768,),
        "attn.qkv.weight": (2304, 768), "attn.qkv.bias": (2304,),
        "attn.proj.weight": (768, 768), "attn.proj.bias": (768,),
        "norm2.weight": (768,), "norm2.bias": (768,),
        "mlp.fc1.weight": (3072, 768), "mlp.fc1.bias": (3072,),
        "mlp.fc2.weight": (768, 3072), "mlp.fc2.bias": (768,),
    }  # fmt: skip
    expected = {
        "cls_token": (1, 1, 768), "pos_embed": (1, 65, 768),
        "patch_embed.proj.weight": (768, 3, 4, 4), "patch_embed.proj.bias": (768,),
        "norm.weight": (768,), "norm.bias": (768,), "head.weight": (100, 768), "head.bias": (100,),
        **{f"blocks.{index}.{name}": shape for index in range(12) for name, shape in block.items()},
    }  # fmt: skip
    assert {name: tuple(value.shape) for name, value in state.items()} == expected


def test_attention_equals_the_fused_kernel() -> None:
    torch.manual_seed(0)
    attention = tiny_vit().blocks[0].attn.double()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    query, key, value = attention.qkv(x).chunk(3, -1)
    heads = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in (query, key, value))
    fused = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attention(x), attention.proj(fused))


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_the_parts_in_a_row_are_the_uncut_model_bit_for_bit(name: str, cut: int) -> None:
    torch.manual_seed(cut)
    model = TINY[name]().train()
    x = torch.randn(4, *INPUTS[name])
    parts = model.cut(cut)
    device, server = parts.device.state_dict().keys(), parts.server.state_dict().keys()
    assert device | server == model.state_dict().keys()
    assert not device & server
    for mode in (True, False):
        model.train(mode)
        assert torch.equal(parts.server(parts.device(x)), model(x))


@pytest.mark.parametrize("name", TINY)
def test_both_ways_to_a_hessian_product_agree(name: str) -> None:
    """Double backward, and forward over reverse: the two that curvature may use."""
    torch.manual_seed(0)
    model = TINY[name]().double().eval()
    x, labels = torch.randn(3, *INPUTS[name], dtype=torch.float64), torch.tensor([0, 1, 2])
    weights = {key: value.detach() for key, value in model.named_parameters()}
    direction = {key: torch.randn_like(value) for key, value in weights.items()}

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(model, weights, x), labels)

    _, forward = jvp(grad(loss), (weights,), (direction,))
    _, smooth = jvp(loss, (weights,), (direction,))
    gradient = torch.autograd.grad(
        loss(dict(model.named_parameters())), model.parameters(), create_graph=True
    )
    along = sum((g * direction[key]).sum() for g, key in zip(gradient, weights, strict=True))
    torch.testing.assert_close(along.detach(), smooth)
    backward = torch.autograd.grad(along, model.parameters())
    assert any(product.abs().max() > 0 for product in backward)
    for key, product in zip(weights, backward, strict=True):
        torch.testing.assert_close(product, forward[key])


def test_the_mlp_is_smooth_enough_for_finite_differences() -> None:
    torch.manual_seed(0)
    model = mlp(3, (5,), width=0.125).double()
    x = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: model(x).square().sum(), (x,))


@pytest.mark.parametrize("name", MODELS)
def test_every_registered_model_passes_the_check_at_its_default_cut(name: str) -> None:
    shape = (3, 32, 32)
    # Patches of 16 leave ViT-Base five tokens, so that this takes a second and not a minute.
    options = {"patch": 16} if name.startswith("vit") else {"width": 0.125}
    split = build_model(name, classes=3, input_shape=shape, **options)
    report = check_cut(split, input_shape=shape, classes=3, batch_size=2, twice=name != "vit-base")
    assert report.activation_shape[0] == 2
    assert min(report.device.parameters, report.server.parameters) > 0


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("vit-base", 3),
        ("vit-small", 3),
        ("vit-tiny", 3),
        ("vit-micro", 1),
        ("vgg16", 4),
        ("small", 1),
        ("mlp", 1),
    ],
)
def test_default_cuts(name: str, cut: int) -> None:
    assert MODELS[name].default_cut == cut


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 4, 4), (2, 8, 16)])
@pytest.mark.parametrize("norm", ["none", "batch", "group"])
def test_small_takes_digits_and_photographs(shape: tuple[int, ...], norm: str) -> None:
    model = small(5, shape, norm=norm)
    assert model(torch.randn(2, *shape)).shape == (2, 5)
    assert all(min(model.cut(cut).device(torch.randn(2, *shape)).shape[2:]) >= 2 for cut in (1, 2, 3))


def test_small_learns_four_corners() -> None:
    torch.manual_seed(0)
    x, y = 0.3 * torch.randn(64, 1, 8, 8), torch.arange(64) % 4
    for index, (row, column) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
        x[y == index, :, row : row + 4, column : column + 4] += 1
    model = small(4, (1, 8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean() > 0.95


@pytest.mark.parametrize(
    ("width", "first", "last"),
    [(1.0, 64, 512), (0.25, 16, 128), (0.01, 8, 8), (0.3, 16, 152), (2.0, 128, 1024)],
)
def test_a_width_rounds_channels_to_multiples_of_eight(width: float, first: int, last: int) -> None:
    with torch.device("meta"):
        model = vgg16(10, (1, 32, 32), width=width)
    assert model.features[0].out_channels == first
    assert model.classifier[0].in_features == last


def test_group_norm_never_normalises_a_channel_by_itself() -> None:
    for width in (0.01, 0.125, 0.3, 1.0):
        with torch.device("meta"):
            model = vgg16(10, (3, 32, 32), width=width, norm="group")
        for norm in (part for part in model.features if isinstance(part, nn.GroupNorm)):
            assert norm.num_groups <= 32
            assert norm.num_channels // norm.num_groups >= 4


def test_dropout_acts_in_training_only() -> None:
    x = torch.randn(2, 3, 8, 8)
    for model in (
        vit("vit-micro", 3, (3, 8, 8), dropout=0.5),
        small(3, (3, 8, 8), dropout=0.5),
        mlp(3, (3, 8, 8), dropout=0.5),
    ):
        assert not torch.equal(model(x), model(x))
        model.eval()
        assert torch.equal(model(x), model(x))


def test_the_same_seed_builds_the_same_weights() -> None:
    def build(seed: int) -> Split:
        torch.manual_seed(seed)
        return build_model("small", classes=3, input_shape=(1, 8, 8))

    assert torch.equal(build(1).device.stages[0].conv.weight, build(1).device.stages[0].conv.weight)
    assert not torch.equal(build(1).device.stages[0].conv.weight, build(2).device.stages[0].conv.weight)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vgg16", {"input_shape": (3, 28, 28)}, "32×32 pixels or more.*'small'"),
        ("vgg16", {"input_shape": (10,)}, "'mlp'"),
        ("vgg16", {"norm": "grup"}, "did you mean 'group'"),
        ("vgg16", {"width": 0.0}, "positive"),
        ("vgg16", {"dropout": 0.1}, "takes no dropout.*width, norm"),
        ("vgg16", {"patch": 8}, "takes no patch"),
        ("vgg16", {"cut": 14}, "convolution 1 to 13"),
        ("vgg16", {"cut": 0}, "convolution 1 to 13"),
        ("vgg16", {"cut": "features.99"}, "did you mean 'features.9'"),
        ("vgg16", {"classes": 1}, "2 classes"),
        ("vit-micro", {"width": 0.5}, "takes no width.*dropout, patch"),
        ("vit-micro", {"norm": "batch"}, "takes no norm.*dropout, patch"),
        ("vit-micro", {"patch": 5}, "do not tile"),
        ("vit-micro", {"patch": 0}, "do not tile"),
        ("vit-micro", {"dropout": 1.0}, "dropout < 1"),
        ("vit-micro", {"cut": 6}, "block 1 to 5"),
        ("vit-micro", {"cut": "blocks.5"}, r"blocks\.0 to blocks\.4"),
        ("small", {"input_shape": (1, 3, 3)}, "'mlp'"),
        ("mlp", {"norm": "batch"}, "takes no norm"),
        ("mlp", {"input_shape": ()}, "no shape"),
        ("smal", {}, "did you mean 'small'"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_fix(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build_model(name, **{"classes": 3, "input_shape": (3, 32, 32), **options})


def test_a_numeric_string_is_a_number_and_a_block_has_a_name() -> None:
    for cut in (2, "2", "blocks.1"):
        parts = build_model("vit-micro", classes=3, input_shape=(3, 8, 8), cut=cut)
        assert len(parts.device.blocks) == 2


def test_sizes_named_in_the_paper() -> None:
    assert SIZES["vit-base"] == Size(768, 12, 12)
    with pytest.raises(CutError):
        tiny_vit().cut("patch_embed")
