"""Whole runs: the identities of SPEC, against each other and against plain torch loops."""

import pytest
import torch
from quick import (
    PLAIN,
    Uncut,
    config_of,
    device_states,
    model_state,
    near_state,
    play_round,
    prepared,
    same_state,
    server_state,
    trained,
)

import gapsl
from gapsl.run.config import preset
from gapsl.run.loop import weights_sha256

ALONE = {"devices": 1, "rounds": 6}
OPTIMIZERS = {
    "momentum": ({"lr": 0.05}, {"lr": 0.1}),
    "adamw": ({"name": "adamw", "lr": 0.01}, {"name": "adamw", "lr": 0.02, "weight_decay": 0.1}),
    "clipped": ({"lr": 0.05, "clip": 0.3}, {"lr": 0.1, "clip": 0.2, "schedule": "cosine", "warmup": 2}),
}


def sha(training):
    return weights_sha256(training.strategy, training.fleet.digests())


def descend_plainly(uncut, config, batches):
    """Train the uncut model with two optimizers, as anybody would write it."""
    settings = {"device": config.device_optimizer, "server": config.server_optimizer}
    parts = {"device": uncut.device, "server": uncut.server}
    optimizers = {name: settings[name].maker()(list(part.parameters())) for name, part in parts.items()}
    rates = {name: settings[name].rate(config.rounds) for name in parts}
    for owner, t, turn in batches:
        uncut.loss(owner, t, turn).backward()
        for name, optimizer in optimizers.items():
            if settings[name].clip is not None:
                torch.nn.utils.clip_grad_norm_(list(parts[name].parameters()), settings[name].clip)
            for group in optimizer.param_groups:
                group["lr"] = rates[name](t)
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("optimizers", OPTIMIZERS)
def test_psl_with_one_device_is_the_uncut_model_with_two_optimizers(optimizers, reduction, tmp_path):
    device, server = OPTIMIZERS[optimizers]
    settings = {**ALONE, "device_optimizer": device, "server_optimizer": server, "reduction": reduction}
    training = trained(method="psl", **settings)
    uncut = Uncut(config_of(**settings))
    descend_plainly(uncut, config_of(**settings), [(0, t, 0) for t in range(1, 7)])
    same_state(server_state(training), uncut.server.state_dict())
    same_state(model_state(device_states(training, tmp_path)[0]), uncut.device.state_dict())


def test_and_so_it_is_with_batch_norm_on_both_sides(tmp_path):
    settings = {**ALONE, "model": "small", "norm": "batch", "precision": "float64"}
    training = trained(method="psl", **settings)
    uncut = Uncut(config_of(**settings))
    descend_plainly(uncut, config_of(**settings), [(0, t, 0) for t in range(1, 7)])
    # Running buffers are moved by our own arithmetic on the server, so not to the last bit.
    near_state(server_state(training), uncut.server.state_dict(), rtol=1e-13)
    same_state(model_state(device_states(training, tmp_path)[0]), uncut.device.state_dict())


MIXED = {
    "model": "small", "norm": "batch", "dropout": 0.3,
    "server_optimizer": {"name": "adamw", "lr": 0.01}, "device_optimizer": {"lr": 0.05},
}  # fmt: skip


@pytest.mark.parametrize("method", ["gapsl", "vanilla"])
@pytest.mark.parametrize("settings", [{}, MIXED], ids=["plain", "mixed"])
def test_with_one_device_the_method_is_psl(method, settings):
    loud = {"gapsl": {"lambda": 3.0}} if method == "gapsl" else {}
    ours = trained(method=method, **ALONE, **settings, **loud)
    theirs = trained(method="psl", **ALONE, **settings)
    assert sha(ours) == sha(theirs)


@pytest.mark.parametrize("k", [(0.2, 0.8), (1.0, 1.0), (0.01, 0.02)])
def test_a_gapsl_run_that_keeps_all_and_pulls_none_is_psl_s(k):
    quiet = {"k_min": k[0], "k_max": k[1], "exclusion": "none", "lambda": 0.0}
    assert sha(trained(method="gapsl", gapsl=quiet, **MIXED)) == sha(trained(method="psl", **MIXED))


def test_an_epsl_run_that_shares_nothing_is_psl_s():
    assert sha(trained(method="epsl", epsl={"phi": 0.0}, **MIXED)) == sha(trained(method="psl", **MIXED))


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_sfl_averaging_every_round_is_data_parallel_sgd_on_the_uncut_model(weights, tmp_path):
    settings = {
        "precision": "float64",
        "partition": "unequal:0.5",
        "rounds": 8,
        "device_optimizer": {**PLAIN, "lr": 0.05},
        "server_optimizer": {**PLAIN, "lr": 0.2},
    }
    training = trained(method="sfl", sfl={"interval": 1, "weights": weights}, **settings)
    uncut = Uncut(config_of(**settings))
    assert len(set(uncut.sizes)) == 3
    shares = uncut.sizes if weights == "samples" else [1, 1, 1]
    for t in range(1, 9):
        loss = sum(n / sum(shares) * uncut.loss(owner, t) for owner, n in enumerate(shares))
        loss.backward()
        with torch.no_grad():
            for part, rate in ((uncut.device, 0.05), (uncut.server, 0.2)):
                for parameter in part.parameters():
                    parameter -= rate * parameter.grad
                    parameter.grad = None
    near_state(server_state(training), uncut.server.state_dict(), rtol=1e-11, atol=1e-13)
    for state in device_states(training, tmp_path):
        near_state(model_state(state), uncut.device.state_dict(), rtol=1e-11, atol=1e-13)


def test_central_is_the_uncut_model_on_all_data(tmp_path):
    """As many mini-batches a round as the devices would have made: the same samples for every method."""
    settings = {"rounds": 3, "device_optimizer": {"lr": 0.05}, "server_optimizer": {"lr": 0.1}}
    training = trained(method="central", **settings)
    uncut = Uncut(config_of(**settings), pooled=True)
    assert uncut.sizes == [120]
    descend_plainly(uncut, config_of(**settings), [(0, t, turn) for t in range(1, 4) for turn in range(3)])
    same_state(server_state(training), uncut.server.state_dict())
    same_state(model_state(device_states(training, tmp_path)[0]), uncut.device.state_dict())


def test_frozen_devices_never_change(tmp_path):
    training = prepared(method="frozen", **MIXED)
    start = device_states(training, tmp_path / "start")
    before = {name: t.clone() for name, t in server_state(training).items()}
    training.run()
    for then, now in zip(start, device_states(training, tmp_path / "end"), strict=True):
        same_state(model_state(now), model_state(then))
        assert now["drawn"] == 4
    assert any(not torch.equal(t, before[name]) for name, t in server_state(training).items())


def traffic(method, rounds=10, **settings):
    final = gapsl.train(**{**QUICK_RUN, "method": method, "rounds": rounds}, **settings).final
    return list(final.bytes_sent.values()), list(final.bytes_received.values())


QUICK_RUN = {**config_of().resolved()}
QUICK_RUN.pop("gapsl")
QUICK_RUN.pop("epochs")


def test_gapsl_sends_and_receives_what_psl_does_and_sfl_more():
    """10 rounds are an epoch here, so SFL averages once."""
    ours, psl, sfl = traffic("gapsl"), traffic("psl"), traffic("sfl")
    assert ours == psl
    for direction in (0, 1):
        assert all(a < b for a, b in zip(psl[direction], sfl[direction], strict=True))


def test_bytes_are_activations_and_labels_up_and_gradients_down():
    sent, received = traffic("psl", rounds=4)
    activations = 4 * 16 * 4  # batch, width of the first hidden layer, float32
    assert sent == [4 * (activations + 4 * 8)] * 3
    assert received == [4 * activations] * 3


def test_frozen_receives_nothing():
    assert traffic("frozen")[1] == [0, 0, 0]


def test_a_gapsl_device_computes_nothing_that_psl_s_does_not():
    """Counted in calls of the device's layers, forward and backward."""
    counts = {}
    for method in ("psl", "gapsl"):
        training = prepared(method=method)
        calls = {"forward": 0, "backward": 0}
        for device in training.fleet._devices.values():
            first = next(m for m in device.part.model.modules() if isinstance(m, torch.nn.Linear))
            first.register_forward_hook(lambda *_, calls=calls: calls.update(forward=calls["forward"] + 1))
            first.weight.register_hook(lambda _, calls=calls: calls.update(backward=calls["backward"] + 1))
        for t in range(1, 5):
            play_round(training, t)
        counts[method] = calls
    assert counts["gapsl"]["forward"] == counts["psl"]["forward"] == 12
    assert 0 < counts["gapsl"]["backward"] <= counts["psl"]["backward"] == 12


@pytest.mark.parametrize("optimizer", [{"lr": 0.05}, {"name": "adamw", "lr": 0.01}], ids=["sgd", "adamw"])
def test_an_excluded_device_keeps_weights_and_optimizer_state(optimizer, tmp_path):
    training = prepared(method="gapsl", gapsl={"eta": 0.5}, device_optimizer=optimizer, devices=5, rounds=6)
    excluded = stepped = 0
    for t in range(1, 7):
        before = device_states(training, tmp_path / f"{t}-before")
        (outcome,) = play_round(training, t)
        after = device_states(training, tmp_path / f"{t}-after")
        for device in range(5):
            assert after[device].pop("drawn") == before[device].pop("drawn") + 1
            if device in outcome.selection.kept:
                stepped += 1
                assert any(
                    name not in before[device] or not torch.equal(value, before[device][name])
                    for name, value in after[device].items()
                )
            else:
                excluded += 1
                same_state(after[device], before[device])
    assert min(excluded, stepped) > 5


def test_with_excluded_plain_everybody_steps(tmp_path):
    training = prepared(method="gapsl", gapsl={"eta": 0.5, "excluded": "plain"}, devices=5)
    before = device_states(training, tmp_path / "before")
    (outcome,) = play_round(training, 1)
    after = device_states(training, tmp_path / "after")
    assert len(outcome.selection.kept) < 5
    for then, now in zip(before, after, strict=True):
        assert any(not torch.equal(t, model_state(then)[name]) for name, t in model_state(now).items())


@pytest.mark.parametrize("method", ["psl", "gapsl", "epsl", "sfl-v2"])
def test_devices_that_are_absent_keep_everything(method, tmp_path):
    training = prepared(method=method, devices=5, participation=0.4, rounds=6)
    seen = set()
    for t in range(1, 4):
        present = training.present(t)
        assert len(present) == 2
        seen |= set(present)
        before = device_states(training, tmp_path / f"{t}-before")
        (outcome,) = play_round(training, t)
        after = device_states(training, tmp_path / f"{t}-after")
        assert sorted(outcome.replies) == list(present)
        for device in set(range(5)) - set(present):
            same_state(after[device], before[device])
    assert len(seen) > 2


def test_who_takes_part_is_drawn_from_the_seed_and_the_round_alone():
    one, two = prepared(devices=6, participation=0.5), prepared(devices=6, participation=0.5, method="psl")
    draws = [one.present(t) for t in range(1, 9)]
    assert draws == [two.present(t) for t in range(1, 9)]
    assert draws[0] == one.present(1)
    assert len(set(draws)) > 3
    assert set().union(*draws) == set(range(6))


def test_an_epoch_is_as_many_rounds_as_the_data_need():
    """ceil(120 / (S * b)) with the devices of a round, not all that are registered."""
    assert prepared(devices=3, batch_size=7).plan.rounds_per_epoch == 6
    assert prepared(devices=6, participation=0.5, batch_size=7).plan.rounds_per_epoch == 6
    assert prepared(devices=3, batch_size=7, rounds=None, epochs=2).plan.total_rounds == 12


@pytest.mark.parametrize("method", ["vanilla", "central"])
def test_every_method_costs_the_same_samples(method, tmp_path):
    training = trained(method=method, rounds=5)
    assert sum(int(state["drawn"]) for state in device_states(training, tmp_path)) == 15


def test_vanilla_hands_weights_on_and_leaves_optimizer_state_with_its_owner(tmp_path):
    training = prepared(method="vanilla", vanilla={"turn": "batch"}, device_optimizer={"lr": 0.1})
    play_round(training, 1)
    states = device_states(training, tmp_path / "one")
    momenta = [s["optimizer.0.momentum_buffer"] for s in states]
    assert not torch.equal(momenta[0], momenta[1])
    training.fleet.hand_over(2, 0)
    after = device_states(training, tmp_path / "two")
    same_state(model_state(after[0]), model_state(states[2]))
    assert torch.equal(after[0]["optimizer.0.momentum_buffer"], momenta[0])


@pytest.mark.parametrize("method", ["sfl", "sfl-v2"])
def test_sfl_leaves_all_devices_with_the_weighted_mean(method, tmp_path):
    training = prepared(method=method, sfl={"interval": 2}, partition="unequal:0.5", precision="float64")
    play_round(training, 1)
    apart = [model_state(s) for s in device_states(training, tmp_path / "one")]
    assert not all(torch.equal(t, apart[1][name]) for name, t in apart[0].items())
    shares = {d: training.fleet.devices[d].samples for d in range(3)}
    training.fleet.average(shares)
    total = sum(shares.values())
    mean = {name: sum(shares[d] / total * apart[d][name] for d in range(3)) for name in apart[0]}
    for state in device_states(training, tmp_path / "two"):
        near_state(model_state(state), mean, rtol=1e-14)


@pytest.mark.parametrize("method", list(gapsl.METHODS))
def test_a_run_gives_the_same_weights_again_and_other_seeds_others(method):
    settings = {"method": method, "rounds": 2, "dropout": 0.2}
    assert sha(trained(**settings)) == sha(trained(**settings)) != sha(trained(seed=1, **settings))


def test_defaults_are_those_of_the_specification():
    config = config_of().resolved()
    assert config["reduction"] == "mean"
    assert config["device_gradient"] == "follow"
    assert (config["gapsl"]["k_min"], config["gapsl"]["k_max"]) == (0.2, 0.8)
    assert config["gapsl"]["eta"] == 0.5
    assert config["gapsl"]["penalty"] == "exact"
    assert config["gapsl"]["exclusion"] == "adaptive"
    assert config["gapsl"]["excluded"] == "skip"
    assert config_of(method="epsl").resolved()["epsl"] == {"phi": 0.5, "hidden": "mean"}
    assert config_of(method="sfl").resolved()["sfl"] == {"interval": None, "weights": "samples"}
    assert config_of(method="vanilla").resolved()["vanilla"] == {"turn": "pass"}


@pytest.mark.parametrize("preset", ["paper-cifar10-vgg16", "paper-cifar100-vit"])
def test_the_paper_s_presets_sum_as_the_paper_writes(preset):
    from gapsl.run.api import compose

    assert compose(preset_name=preset).reduction == "sum"


@pytest.mark.parametrize(
    "words",
    [{"method": "psl"}, {"method": "gapsl"}, preset("recommended")],
    ids=["psl", "gapsl", "recommended"],
)
def test_the_server_starts_on_a_device_s_activations_before_the_next_ones_are_there(words):
    training = prepared(**words)
    collect, first_order = training.fleet.collect, training.strategy.server.first_order
    done, seen = [], []

    def arriving(round, exchange):
        for upload in collect(round, exchange):
            seen.append(len(done))
            yield upload

    def counted(upload, **how):
        done.append(upload.device)
        return first_order(upload, **how)

    training.fleet.collect, training.strategy.server.first_order = arriving, counted
    training.one_round(1)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_curves_are_of_some_samples_and_the_end_of_all(validation):
    settings = {"method": "psl", "rounds": 4, "evaluate_every": 2, "validation": validation}
    few, whole = (trained(curve_samples=count, **settings) for count in (7, None))
    shares = [entry.device_mean * 7 * 3 for entry in few.state.history]
    assert shares[0] == pytest.approx(round(shares[0])), "three devices, seven samples"
    assert len(few.state.history) == len(whole.state.history) == 2
    assert few.state.history[-1].device_mean == pytest.approx(whole.state.history[-1].device_mean)
    same_state(server_state(few), server_state(whole))
