"""Small worlds to run a method's round in: server parts, uploads, and gradients of one's choice."""

import copy

import torch
from torch import nn

from gapsl.methods import METHODS, DeviceInfo, Exchange, RunInfo, ServerModel, Upload
from gapsl.methods.server_model import cross_entropy
from gapsl.models.part import ModelPart
from gapsl.models.vit import Size, ViT

CLASSES = 3
BATCH = 6

PARALLEL = ["psl", "epsl", "gapsl", "frozen", *(name for name in METHODS if name.startswith("gapsl/"))]
AT_ONCE = [*PARALLEL, "sfl", "sfl-v2"]  # every method in which all devices of a round send together


def sgd(lr=1.0, momentum=0.0):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=momentum)


def mlp(*inside):
    return nn.Sequential(nn.Linear(5, 7), *inside, nn.Tanh(), nn.Linear(7, CLASSES))


def convolution(activation):
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), activation, nn.Conv2d(3, 2, 3), activation, nn.Flatten(),
        nn.Linear(8, CLASSES),
    )  # fmt: skip


def attention(dropout=0.0):
    return ViT(Size(8, 3, 2), CLASSES, (1, 4, 4), 2, dropout).cut(1).server


# name: how to build the server's part, and the shape of one sample's activations
SERVERS = {
    "tanh": (mlp, (5,)),
    "convolution-softplus": (lambda: convolution(nn.Softplus()), (2, 4, 4)),
    "convolution-relu": (lambda: convolution(nn.ReLU()), (2, 4, 4)),
    "layer-norm": (lambda: mlp(nn.LayerNorm(7)), (5,)),
    "attention": (attention, (5, 8)),
    "batch-norm": (lambda: mlp(nn.BatchNorm1d(7)), (5,)),
    "dropout": (lambda: mlp(nn.Dropout(0.4)), (5,)),
    "attention-dropout": (lambda: attention(0.3), (5, 8)),
}


def server_named(name, dtype=torch.float64):
    torch.manual_seed(1)
    build, _ = SERVERS[name]
    model = build().to(dtype)
    for parameter in model.parameters():  # away from zeros and ones, where terms vanish
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def uploads_for(name, *, devices=4, dtype=torch.float64, seed=2, round=1):
    _, shape = SERVERS[name]
    generator = torch.Generator().manual_seed(seed)
    return [
        Upload(
            device,
            round,
            0,
            torch.randn(BATCH, *shape, generator=generator, dtype=torch.float64).to(dtype),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for device in range(devices)
    ]


def method(
    name,
    model,
    *,
    devices=4,
    samples=None,
    total_rounds=10,
    rounds_per_epoch=3,
    reduction="mean",
    device_gradient="follow",
    optimizer=None,
    lr=1.0,
    seed=0,
    loss=cross_entropy,
    robust="none",
    robust_trim=0.2,
    **parameters,
):
    """A method over a copy of the model; plain SGD of rate 1, so a step is the gradient itself."""
    strategy = METHODS[name]
    part = ModelPart(copy.deepcopy(model), optimizer or sgd(lr), lambda round: lr)
    samples = samples or [10 + 7 * device for device in range(devices)]
    infos = {device: DeviceInfo(count, (count, 0, 0), 2) for device, count in enumerate(samples)}
    run = RunInfo(
        seed=seed,
        total_rounds=total_rounds,
        rounds_per_epoch=rounds_per_epoch,
        batches_per_round=devices,
        devices=infos,
        reduction=reduction,
        device_gradient=device_gradient,
        parameters=strategy.parameters.model_validate(parameters),
        classes=CLASSES,
        robust=robust,
        robust_trim=robust_trim,
    )
    return strategy(ServerModel(part, seed=seed, loss=loss), run)


def play(strategy, uploads, *, round=1, measure=False):
    exchange = Exchange(tuple(sorted(upload.device for upload in uploads)))
    return strategy.step(round, exchange, iter(uploads), measure=measure)


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def weights(strategy):
    """All that trains on the server, in one vector: a copy."""
    return torch.cat([flat(part.model) for part in strategy.parts().values()])


def buffers(strategy):
    return torch.cat(
        [b.detach().double().flatten() for part in strategy.parts().values() for b in part.model.buffers()]
        or [torch.zeros(0)]
    )


def same_outcome(one, other):
    """Whether two rounds gave the same replies, losses and findings, to the bit."""
    assert one.replies.keys() == other.replies.keys()
    for device, reply in one.replies.items():
        assert torch.equal(reply.gradient, other.replies[device].gradient), device
        assert reply.step == other.replies[device].step
    assert one.losses == other.losses
    assert one.skipped == other.skipped
    assert (one.selection, one.probes, one.details) == (other.selection, other.probes, other.details)
    assert (one.angles is None) == (other.angles is None)
    assert one.angles is None or torch.equal(one.angles, other.angles)


# A world whose gradients are chosen: with the loss w.a, g_i is a_i and the activations' gradient is w.
# H_ww is zero and H_aw the identity, so every derivative of the regulariser is known in closed form.


def choose(rows, *, dtype=torch.float64, weight=None, round=1, ids=None):
    """A server and uploads whose gradients g_i are these rows."""
    rows = torch.tensor(rows, dtype=dtype)
    model = nn.Linear(rows.shape[1], 1, bias=False).to(dtype)
    with torch.no_grad():
        model.weight.copy_(torch.ones(rows.shape[1]) if weight is None else torch.tensor(weight))
    uploads = [
        Upload(device, round, 0, row[None, :].clone(), torch.zeros(1, dtype=torch.int64))
        for device, row in zip(ids or range(len(rows)), rows, strict=True)
    ]
    return model, uploads


def product_loss(logits, labels, device):
    return logits.sum()


def chosen_round(name, rows, *, dtype=torch.float64, ids=None, **settings):
    """Play one round with these gradients; returns the outcome and the server's step (its gradient)."""
    model, uploads = choose(rows, dtype=dtype, ids=ids)
    count = max(ids) + 1 if ids else len(rows)
    strategy = method(name, model, devices=count, loss=product_loss, **settings)
    before = weights(strategy)
    outcome = play(strategy, uploads)
    return outcome, before - weights(strategy)
