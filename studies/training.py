"""One run of the study: its rounds, and what is measured after the last."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gapsl.common.streams import global_stream, random_subset, torch_stream
from gapsl.data import Batches, Source, make_evaluation_transform, make_partition
from gapsl.data.probes import Probes
from gapsl.data.transform import crop_flip
from gapsl.device.probe_alignment import learn_and_align
from gapsl.models.part import ModelPart, average, weights_of
from gapsl.options.probes import angles_of, apart, leader_of, members_of, pulls
from studies.judging import Running, make_judge
from studies.runs import Ground, Run
from studies.task import FAST, Losses, Setting, build

CLASS_MEAN_DECAY = 0.9
AT_ONCE = 500  # pictures in an evaluation's pass
TINY = 1e-12
TURNS, DRAWN, PRETRAINING_LR = 4, 64, 0.05


def train(
    run: Run, source: Source, *, seed: int, rounds: int, setting: Setting | None = None
) -> dict[str, float]:
    """Train a run and return its measures: accuracies on the held-out pictures, loss, drift."""
    training = Training(run, source, seed=seed, rounds=rounds, setting=setting or Setting())
    for round in range(1, rounds + 1):
        training.step(round)
    return training.measures(source)


class Passed(NamedTuple):
    """What a pass through the server gave."""

    loss: float
    gradient: Tensor  # of the server's loss, flat
    returned: Tensor  # the gradient of the devices' loss at the cut


class Training:
    """The client-side models of a run, and a round after another."""

    def __init__(self, run: Run, source: Source, *, seed: int, rounds: int, setting: Setting) -> None:
        self.run, self.seed, self.rounds, self.setting = run, seed, rounds, setting
        classes, labels = len(source.classes), source.train.labels
        partition = make_partition(
            setting.partition, labels, classes=classes, devices=setting.devices, seed=seed
        )
        self.sizes = [float(size) for size in partition.sizes]
        self.losses = Losses(partition.label_counts(labels, classes), run.tau)
        self.as_seen = make_evaluation_transform(source)
        self.batches = [
            Batches(source.train, own, seed=seed, device=device, batch_size=setting.batch_size,
                    transform=self.augment)
            for device, own in enumerate(partition.devices)
        ]  # fmt: skip
        with global_stream(seed, "weights"):
            device_model, server_model = build(classes, cut_norm=run.cut_norm)
        if run.pretrained:
            self.pretrain(device_model, source)
        first, server = self.part(device_model, run.device_lr), self.part(server_model, setting.server_lr)
        self.start = first.flat()
        self.devices = [first.copy() for _ in self.batches]
        self.servers = [server.copy() for _ in self.batches] if run.server_copies else [server]
        self.smooth = [] if run.ema is None else [first.copy() for _ in self.batches]
        classifier = sum(p.numel() for p in server_model[-1].parameters())
        how, ground = run.judging, run.ground
        self.judge = None if how is None else make_judge(how, rounds=rounds, classifier=classifier)
        self.class_means = None if run.class_means is None else ClassMeans(classes, run.class_means)
        self.probes = None if ground is None else Probes(source, seed=seed, per_batch=ground.probes)
        self.history: list[float] = []  # the server's loss, round by round

    def augment(self, raw: Tensor, seed: int, device: int, round: int, turn: int) -> Tensor:
        """Return a batch normalised, shifted and mirrored."""
        return crop_flip(self.as_seen(raw), torch_stream(seed, "augment", device, round, turn))

    def part(self, model: nn.Module, lr: float) -> ModelPart:
        """Return a model with SGD whose learning rate warms up and then follows a cosine."""

        def rate(round: int) -> float:
            cosine = (1 + math.cos(math.pi * round / self.rounds)) / 2
            return lr * cosine * min(1, round / self.setting.warm_up)

        momentum = self.setting.momentum
        return ModelPart(model, lambda parameters: torch.optim.SGD(parameters, lr, momentum=momentum), rate)

    def pretrain(self, model: nn.Sequential, source: Source) -> None:
        """Let a part learn to tell by how many quarter turns drawn pictures are turned: nobody's data."""
        with global_stream(self.seed, "pretraining"):
            _, server = build(TURNS, cut_norm=self.run.cut_norm)
        drawn = Probes(source, seed=self.seed, per_batch=DRAWN)
        chance = torch_stream(self.seed, "pretraining")
        whole = nn.Sequential(model, server)
        optimizer = torch.optim.SGD(whole.parameters(), PRETRAINING_LR, momentum=self.setting.momentum)
        for round in range(self.run.pretrained):
            turns = torch.randint(TURNS, (DRAWN,), generator=chance)
            pictures = [
                picture.rot90(int(turn), (1, 2))
                for picture, turn in zip(drawn.of_round(round), turns, strict=True)
            ]
            logits = whole(torch.stack(pictures).contiguous(memory_format=FAST))
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(logits, turns))
            optimizer.step()
        model.zero_grad()

    def until(self, share: float) -> int:
        """Return the last of this share of the rounds."""
        return int(share * self.rounds + 0.5)

    def step(self, round: int) -> None:
        """Train one round, counted from 1."""
        begin, end = map(self.until, self.run.trained)
        moving = begin < round <= end
        drawn = [batches.draw(round) for batches in self.batches]
        labels = torch.stack([own for _, own in drawn])
        common = [self.probes.of_round(round)] if self.probes is not None else []
        with torch.set_grad_enabled(moving):
            sent = [
                part.model(torch.cat([pictures, *common]).contiguous(memory_format=FAST))
                for part, (pictures, _) in zip(self.devices, drawn, strict=True)
            ]
        activations = [a.detach()[: self.setting.batch_size] for a in sent]
        replies = self.serve(round, activations, labels)
        if moving:
            for device, reply in self.led(round, replies, sent, labels).items():
                self.answered(self.devices[device], sent[device], reply, *common)
                self.learn(round, self.devices[device])
        self.meet(round)
        self.follow()

    def answered(self, part: ModelPart, sent: Tensor, reply: Tensor, probes: Tensor | None = None) -> None:
        """Give a part the gradients of its own rows; at the probes it is pulled, or solves for the way."""
        ground = self.run.ground
        if ground is None or not ground.steps or probes is None:
            torch.autograd.backward(sent, reply)
        else:
            learn_and_align(part, sent, reply, probes.contiguous(memory_format=FAST), ground.steps)

    def serve(self, round: int, activations: Sequence[Tensor], labels: Tensor) -> dict[int, Tensor]:
        """Step on the server and return the devices' own gradients at the cut; who has none, skips."""
        count = len(activations)
        if self.judge is None and not self.run.server_copies:
            owners = torch.arange(count).repeat_interleave(labels.shape[1])
            found = self.passes(self.servers[0], torch.cat(list(activations)), labels.flatten(), owners)
            self.servers[0].step(round, found.gradient)
            self.history.append(found.loss)
            # The loss was the mean over all devices' rows; a device's own is the mean over its own.
            return dict(enumerate(torch.split(found.returned * count, labels.shape[1])))
        servers = self.servers if self.run.server_copies else self.servers * count
        each = [
            self.passes(servers[i], activations[i], labels[i], torch.full_like(labels[i], i))
            for i in range(count)
        ]
        self.history.append(sum(found.loss for found in each) / count)
        if self.judge is None:
            for server, found in zip(servers, each, strict=True):
                server.step(round, found.gradient)
            return {i: found.returned for i, found in enumerate(each)}
        gradients = torch.stack([found.gradient for found in each])
        verdict = self.judge(round, gradients)
        self.servers[0].step(round, verdict.on_server @ gradients / verdict.on_server.sum().clamp_min(TINY))
        return {i: each[i].returned * weight for i, weight in enumerate(verdict.replies.tolist()) if weight}

    def passes(self, server: ModelPart, activations: Tensor, labels: Tensor, owners: Tensor) -> Passed:
        """Run forward and backward for rows that belong to these devices."""
        leaf = activations.detach().requires_grad_()
        logits = server.model(leaf)
        loss = self.losses(self.run.server_loss, logits, labels, owners)
        if self.run.device_loss is None:
            returned, *pieces = torch.autograd.grad(loss, [leaf, *server.parameters])
        else:
            theirs = self.losses(self.run.device_loss, logits, labels, owners)
            (returned,) = torch.autograd.grad(theirs, leaf, retain_graph=True)
            pieces = list(torch.autograd.grad(loss, server.parameters))
        return Passed(loss.item(), torch.cat([piece.reshape(-1) for piece in pieces]), returned)

    def led(
        self, round: int, replies: dict[int, Tensor], sent: Sequence[Tensor], labels: Tensor
    ) -> dict[int, Tensor]:
        """Return the replies with what holds the client-side models together, for all rows that were sent."""
        own = self.setting.batch_size
        if self.class_means is not None:
            towards = self.class_means.pulls([a.detach()[:own] for a in sent], labels)
            replies = {device: reply + towards[device] for device, reply in replies.items()}
        if self.run.ground is not None:
            seen = {device: a.detach()[own:] for device, a in enumerate(sent)}
            leader = leader_of(seen, self.leaders(round, self.run.ground, seen))
            weight = None if self.run.ground.steps else self.run.ground.pull / self.run.device_lr
            found = pulls(seen, leader, weight)
            nothing = torch.zeros_like(sent[0][:own])  # who was left out of the round is led all the same
            replies = {d: torch.cat([replies.get(d, nothing), found[d]]) for d in seen}
        return replies

    def leaders(self, round: int, ground: Ground, seen: dict[int, Tensor]) -> tuple[int, ...]:
        """Return the devices that lead this round."""
        agreeing = members_of(seen, angles_of(seen), ground.leaders)
        if not ground.at_random:
            return agreeing
        return random_subset(len(seen), len(agreeing), self.seed, "leaders", round=round)

    def learn(self, round: int, part: ModelPart) -> None:
        """Take a device's step on the gradients it has."""
        if self.run.prox is not None:
            for parameter, start in zip(part.parameters, part.views(self.start), strict=True):
                assert parameter.grad is not None
                parameter.grad.add_(parameter.detach() - start, alpha=self.run.prox)
        part.step(round)

    def meet(self, round: int) -> None:
        """Average the client-side models if it is due, at the end in any case unless that is over."""
        every = self.run.average_every
        due = every and (round % every == 0 or round == self.rounds)
        if due and round <= self.until(self.run.average_until):
            # SFL counts devices by their data; with one server, which does not, all count the same.
            weights = self.sizes if self.run.server_copies else [1.0] * len(self.devices)
            merge([part.model for part in self.devices], weights)
            if self.run.server_copies:
                merge([part.model for part in self.servers], weights)

    def follow(self) -> None:
        """Let the time-averaged client-side models follow those that train."""
        if self.run.ema is not None:
            for slow, part in zip(self.smooth, self.devices, strict=True):
                for mean, parameter in zip(slow.parameters, part.parameters, strict=True):
                    mean.data.lerp_(parameter.detach(), 1 - self.run.ema)

    def measures(self, source: Source) -> dict[str, float]:
        """Return what the page shows, of the client-side models as they are now."""
        parts, length = self.smooth or self.devices, self.start.norm()
        last = self.history[-max(1, len(self.history) // 10) :]
        return {
            **evaluate([part.model for part in parts], self.servers[0].model, source),
            "training_loss": sum(last) / len(last),
            "drift": sum(float((part.flat() - self.start).norm() / length) for part in parts) / len(parts),
        }


class ClassMeans:
    """Running means of the pooled activations of every class; devices that have it count equally."""

    def __init__(self, classes: int, weight: float) -> None:
        self.weight = weight
        self.means = [Running(CLASS_MEAN_DECAY) for _ in range(classes)]

    def pulls(self, activations: Sequence[Tensor], labels: Tensor) -> list[Tensor]:
        """Return the gradients of weight/2 · mean |pooled - mean of the class|² / mean |mean of the class|².

        The means take in this round's activations, labels (S, n), and are then held.
        """
        pooled = torch.stack([a.mean(dim=(2, 3)) for a in activations])
        targets = torch.empty_like(pooled)
        for label in set(labels.flatten().tolist()):
            has = labels == label
            each = [rows[own].mean(dim=0) for rows, own in zip(pooled, has, strict=True) if own.any()]
            targets[has] = self.means[label].update(torch.stack(each).mean(dim=0))
        scale = self.weight / targets.square().sum(dim=2).mean().clamp_min(TINY)
        pixels = activations[0][0, 0].numel()
        away = (pooled - targets) * scale / (labels.shape[1] * pixels)
        return [rows[:, :, None, None].expand_as(a) for rows, a in zip(away, activations, strict=True)]


def merge(models: Sequence[nn.Module], weights: Sequence[float]) -> None:
    """Give all models the weighted mean of their weights."""
    mean = average([weights_of(model) for model in models], weights)
    for model in models:
        model.load_state_dict(mean)


@torch.no_grad()
def evaluate(models: Sequence[nn.Module], server: nn.Module, source: Source) -> dict[str, float]:
    """Return accuracies on the held-out pictures, and how far apart the client-side models are on some.

    `ensemble` adds up what all of them make of a picture, `merged` is one with their mean weights.
    """
    labels = source.test.labels
    pictures = make_evaluation_transform(source)(source.test.read(torch.arange(len(labels))))
    pieces = torch.split(pictures.contiguous(memory_format=FAST), AT_ONCE)

    def probabilities(model: nn.Module) -> Tensor:
        return torch.cat([server(model(piece)).softmax(dim=1) for piece in pieces])

    def accuracy(found: Tensor) -> float:
        return float((found.argmax(dim=1) == labels).float().mean())

    each = [probabilities(model) for model in models]
    merged = copy.deepcopy(models[0])
    merged.load_state_dict(average([weights_of(model) for model in models], [1.0] * len(models)))
    seen = {device: model(pieces[0]) for device, model in enumerate(models)}
    accuracies = [accuracy(found) for found in each]
    return {
        "device_mean": sum(accuracies) / len(accuracies),
        "device_min": min(accuracies),
        "ensemble": accuracy(torch.stack(each).sum(dim=0)),
        "merged": accuracy(probabilities(merged)),
        "apart": apart(seen, leader_of(seen, sorted(seen))),
    }
