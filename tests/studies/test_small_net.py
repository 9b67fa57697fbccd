"""The study of small nets: what should change nothing changes nothing, and every result is on the page."""

import json
import math
from dataclasses import replace

import pytest
import torch

from gapsl.common.errors import InputError
from gapsl.data import ArraySamples, Source
from studies import judging, small_net
from studies.judging import Excluding, Running
from studies.page import write_page
from studies.runs import CATALOGUE, GROUPS, MEET, MEETING, PLAIN, PRIOR, Ground, Selection, Weighting
from studies.task import Setting, small_pictures
from studies.training import ClassMeans, Training, train

TINY = Setting(devices=3, partition="dirichlet:0.3,min=10", batch_size=4, warm_up=1)
QUICK = replace(PLAIN, device_lr=0.01)
CLASSES = 4


@pytest.fixture(autouse=True)
def _few_probes(monkeypatch):
    monkeypatch.setattr("gapsl.data.probes.POOL", 16)
    monkeypatch.setattr("gapsl.data.probes.AT_ONCE", 16)


@pytest.fixture(scope="module")
def source():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(240) % CLASSES
    shades = labels.view(-1, 1, 1, 1) / CLASSES
    pictures = (torch.rand(240, 3, 8, 8, generator=generator) + shades) / 2
    train = ArraySamples(pictures[40:], labels[40:])
    held_out = ArraySamples(pictures[:40], labels[:40])
    return Source("shades", train, held_out, tuple("abcd"), (0.5,) * 3, (0.25,) * 3)


def trained(run, source, rounds=5, setting=TINY, seed=0):
    training = Training(run, source, seed=seed, rounds=rounds, setting=setting)
    for round in range(1, rounds + 1):
        training.step(round)
    return training


def weights(training):
    return torch.cat([part.flat() for part in [*training.devices, *training.servers]])


def same(first, second, **tolerance):
    assert not torch.equal(weights(first)[: len(first.start)], first.start)  # or nothing was trained at all
    torch.testing.assert_close(weights(first), weights(second), **tolerance)


# One pass for all devices adds in another order than one for each.
ROUNDING = {"rtol": 1e-4, "atol": 1e-6}
EXACT = {"rtol": 0, "atol": 0}


def test_the_catalogue_is_consistent():
    names = [run.name for run in CATALOGUE]
    assert len(set(names)) == len(names)
    assert {run.group for run in CATALOGUE} == set(GROUPS)
    assert all(name in names for group in GROUPS.values() for name in group.beside)
    assert all(run.why.endswith((".", "?")) for run in CATALOGUE)
    different = {json.dumps([run.settings(), run.length]) for run in CATALOGUE}
    assert len(different) == len(CATALOGUE)


FIRST = {run.group: run for run in reversed(CATALOGUE)}.values()  # of each group


@pytest.mark.parametrize(
    "run",
    [pytest.param(run, marks=[pytest.mark.slow] * (run not in FIRST), id=run.name) for run in CATALOGUE],
)
def test_every_run_of_the_catalogue_runs(run, source):
    short = replace(run, pretrained=3) if run.pretrained else run
    found = train(short, source, seed=0, rounds=3, setting=TINY)
    assert all(math.isfinite(value) for value in found.values())
    assert (found["drift"] == 0) == (run.trained == (0.0, 0.0))


def test_the_same_seed_repeats_a_run_and_another_does_not(source):
    same(trained(QUICK, source), trained(QUICK, source), **EXACT)
    assert not torch.equal(weights(trained(QUICK, source)), weights(trained(QUICK, source, seed=1)))


@pytest.mark.parametrize(
    "nothing",
    [
        {"prox": 0.0},
        {"ema": 0.0},
        {"class_means": 0.0},
        {"trained": (0.0, 1.0)},
        {"device_loss": "plain"},
        {"average_every": 1, "average_until": 0.0},
        {"ground": Ground(pull=0.0)},
        {"server_loss": "prior", "tau": 0.0},
    ],
    ids=str,
)
def test_a_remedy_of_no_strength_changes_nothing(nothing, source):
    plain, other = trained(QUICK, source), trained(replace(QUICK, **nothing), source)
    same(plain, other, **ROUNDING)
    assert other.measures(source) == pytest.approx(plain.measures(source), abs=1e-4)


@pytest.mark.parametrize("remedy", [{"prox": 10.0}, {"ema": 0.9}], ids=str)
def test_a_strong_remedy_keeps_parts_near_the_start(remedy, source):
    drift = [trained(run, source, 10).measures(source)["drift"] for run in (QUICK, replace(QUICK, **remedy))]
    assert 0 < drift[1] < 0.9 * drift[0]


def test_normalised_at_the_cut_every_sample_has_mean_0_and_variance_1(source):
    training = trained(replace(QUICK, cut_norm=True), source)
    pictures = training.as_seen(source.test.read(torch.arange(8)))
    sent = training.devices[0].model(pictures).flatten(1)
    torch.testing.assert_close(sent.mean(dim=1), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(sent.var(dim=1, correction=0), torch.ones(8), atol=1e-2, rtol=0)


def test_a_pretrained_start_is_common_to_all_and_repeats(source):
    run = replace(QUICK, pretrained=3)
    first, again = (Training(run, source, seed=0, rounds=1, setting=TINY) for _ in range(2))
    plain = Training(QUICK, source, seed=0, rounds=1, setting=TINY)
    assert torch.equal(first.start, again.start) and not torch.equal(first.start, plain.start)
    assert all(torch.equal(part.flat(), first.start) for part in first.devices)
    assert torch.equal(first.servers[0].flat(), plain.servers[0].flat()), "the server starts as ever"


def test_averaging_every_round_keeps_the_parts_identical(source):
    together = trained(replace(QUICK, average_every=1), source)
    first = together.devices[0].flat()
    assert all(torch.equal(part.flat(), first) for part in together.devices)
    found = together.measures(source)
    assert found["device_mean"] == pytest.approx(found["device_min"]) == found["merged"] == found["ensemble"]
    assert found["apart"] < 1e-5 < trained(QUICK, source).measures(source)["apart"]


def test_averaging_early_is_averaging_where_early_is_always_and_nothing_afterwards(source):
    always = trained(replace(QUICK, average_every=1), source)
    same(always, trained(replace(QUICK, average_every=1, average_until=1.0), source), **EXACT)
    early = Training(
        replace(QUICK, average_every=1, average_until=0.4), source, seed=0, rounds=5, setting=TINY
    )
    together = []
    for round in range(1, 5):
        early.step(round)
        together.append(torch.equal(early.devices[0].flat(), early.devices[1].flat()))
    assert together == [True, True, False, False]


def test_parts_move_in_the_rounds_they_train_in_only(source):
    training = Training(replace(QUICK, trained=(0.4, 0.8)), source, seed=0, rounds=5, setting=TINY)
    moved = []
    for round in range(1, 6):
        before = training.devices[0].flat()
        training.step(round)
        moved.append(not torch.equal(before, training.devices[0].flat()))
    assert moved == [False, False, True, True, False]


def test_sfl_of_one_device_is_psl_of_one_device(source):
    alone = replace(TINY, devices=1, partition="iid")
    sfl = replace(QUICK, server_copies=True, average_every=2)
    same(trained(QUICK, source, setting=alone), trained(sfl, source, setting=alone), **ROUNDING)


def test_sfl_ends_with_one_model(source):
    training = trained(replace(QUICK, server_copies=True, average_every=2), source, rounds=5)
    for parts in (training.devices, training.servers):
        assert len(parts) == 3
        assert all(torch.equal(part.flat(), parts[0].flat()) for part in parts)


@pytest.mark.parametrize("on_server", [False, True])
def test_weights_of_one_are_psl(on_server, source, monkeypatch):
    monkeypatch.setattr(judging, "angles_to", lambda gradients, leader: torch.zeros(len(gradients)))
    weighted = replace(QUICK, judging=Weighting(on_server))
    same(trained(QUICK, source), trained(weighted, source), **ROUNDING)


def test_weights_are_the_cosines_in_the_replies_and_if_asked_on_the_server():
    gradients = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    for on_server in (False, True):
        verdict = judging.Weighing(Weighting(on_server), rounds=10)(1, gradients)
        expected = torch.tensor([1.0, 1.0, 0.6, 0.0])
        assert torch.allclose(verdict.replies, expected, atol=1e-6)
        assert torch.allclose(verdict.on_server, expected if on_server else torch.ones(4), atol=1e-6)


def test_a_cap_of_no_exclusion_keeps_everybody(source):
    capped = replace(QUICK, judging=Selection(cap=0))
    same(trained(QUICK, source), trained(capped, source), **ROUNDING)
    assert not torch.equal(
        weights(trained(replace(QUICK, judging=Selection()), source)), weights(trained(capped, source))
    )


def test_nobody_is_left_out_more_often_in_a_row_than_the_cap_allows():
    judge = Excluding(Selection(cap=3), rounds=20, classifier=0)
    odd = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [-1.0, 0.0]])
    kept = [judge(round, odd).on_server[3].item() for round in range(1, 9)]
    assert kept == [0, 0, 0, 1, 0, 0, 0, 1]


def test_those_left_out_skip_their_step_unless_they_still_train(source):
    odd = judging.Verdict(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0]))
    for replies, moves in ((odd.replies, False), (torch.ones(3), True)):
        training = Training(replace(QUICK, judging=Selection()), source, seed=0, rounds=5, setting=TINY)
        verdict = odd._replace(replies=replies)
        training.judge = lambda round, gradients, verdict=verdict: verdict
        training.step(1)
        assert [not torch.equal(part.flat(), training.start) for part in training.devices] == [
            True,
            True,
            moves,
        ]
    assert judging.Excluding(Selection(excluded_train=True), 5, 0)(1, torch.eye(3)).replies.tolist() == [
        1,
        1,
        1,
    ]


def test_the_classifier_can_be_left_out_of_the_angles():
    gradients = torch.tensor([[1.0, 0.0, 9.0], [1.0, 0.1, -9.0], [1.0, -0.1, 9.0], [-1.0, 0.0, 9.0]])
    body = Excluding(Selection(classifier=False, eta=0.0), rounds=5, classifier=1)(1, gradients)
    assert body.on_server.tolist() == [1, 1, 1, 0]


def test_relative_angles_ask_what_is_usual_for_a_device():
    judge = Excluding(Selection(usual=0.9, eta=0.0), rounds=20, classifier=0)
    odd = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [-1.0, 0.0]])
    assert all(judge(round, odd).on_server.sum() == 4 for round in (1, 2, 3))  # odd, but as ever
    changed = odd.clone()
    changed[2] = torch.tensor([0.0, -1.0])
    assert judge(4, changed).on_server[2] == 0


def test_a_running_mean_starts_at_its_first_value_and_forgets():
    mean = Running(0.9)
    assert mean.update(torch.tensor([1.0])) == 1
    assert mean.relative(torch.tensor([2.0])) == 1
    assert mean.value == pytest.approx(1.1)
    assert Running(0.0).update(torch.tensor([3.0])) == 3


def test_the_pull_to_class_means_is_the_gradient_it_says_it_is():
    torch.manual_seed(0)
    labels = torch.tensor([[0, 1, 1], [0, 0, 2]])
    activations = [torch.randn(3, 5, 2, 2, dtype=torch.float64) for _ in labels]
    means = ClassMeans(CLASSES, 7.0)
    found = means.pulls(activations, labels)
    first = (activations[0][0].mean((1, 2)) + activations[1][:2].mean((0, 2, 3))) / 2
    assert torch.allclose(means.means[0].value, first)
    targets = [torch.stack([means.means[label].value for label in own]) for own in labels.tolist()]
    size = torch.cat(targets).square().sum(1).mean()
    for sent, target, pull in zip(activations, targets, found, strict=True):
        leaf = sent.clone().requires_grad_()
        loss = 7.0 / 2 * (leaf.mean((2, 3)) - target).square().sum(1).mean() / size
        assert torch.allclose(torch.autograd.grad(loss, leaf)[0], pull)


def test_common_ground_holds_the_parts_together(source):
    loose = replace(QUICK, server_loss="balanced", device_loss="prior")
    held, met = (replace(loose, ground=Ground(probes=4, steps=steps)) for steps in (0, 4))
    apart = [train(run, source, seed=0, rounds=20, setting=TINY)["apart"] for run in (loose, held, met)]
    assert apart[1] < apart[0] / 2
    assert apart[2] < apart[1] / 2


def test_all_devices_drawn_at_random_are_all_devices(source):
    drawn = replace(MEET, ground=replace(MEETING, at_random=True))
    same(trained(MEET, source), trained(drawn, source), **EXACT)
    part = replace(MEET, device_lr=0.01, ground=replace(MEETING, leaders=0.5, at_random=True))
    training = trained(part, source)
    seen = {device: torch.randn(2, 2) for device in range(3)}
    led = {training.leaders(round, part.ground, seen) for round in range(20)}
    assert len(led) > 1 and all(len(members) == 2 for members in led)


def test_the_test_set_is_left_alone():
    class Sealed(ArraySamples):
        def read(self, indices):
            raise AssertionError("the test set was read")

    pictures, labels = (
        torch.arange(50, dtype=torch.uint8).view(-1, 1, 1, 1).expand(50, 3, 4, 4),
        torch.arange(50) % 5,
    )
    whole = Source(
        "numbers",
        ArraySamples(pictures, labels),
        Sealed(pictures, labels),
        tuple("abcde"),
        (0.5,) * 3,
        (1.0,) * 3,
    )
    small = small_pictures(whole, count=30, held_out=10)
    shown = [
        samples.read(torch.arange(len(samples)))[:, 0, 0, 0] * 255 for samples in (small.train, small.test)
    ]
    assert [len(part) for part in shown] == [20, 10] and small.input_shape == (3, 2, 2)
    numbers = torch.cat(shown).round().long()
    assert len(numbers.unique()) == 30  # no picture is in both
    assert torch.equal(numbers % 5, torch.cat([small.train.labels, small.test.labels]))


def run_some(source, path, **changes):
    runs = [QUICK, replace(PRIOR, length=2)]
    small_net.run_all(
        runs, source, **{"seeds": (0, 1), "rounds": 2, "path": path, "setting": TINY, **changes}
    )


def test_finished_runs_are_skipped_and_others_stored_at_once(source, tmp_path, monkeypatch, capsys):
    path = tmp_path / "results.jsonl"
    run_some(source, path, seeds=(0,))
    stored = small_net.read_results(path)
    assert [(r["name"], r["seed"], r["rounds"]) for r in stored] == [
        ("psl-1e-3", 0, 2),
        ("psl-prior-3e-4", 0, 4),
    ]
    assert {
        "device_mean",
        "device_min",
        "ensemble",
        "merged",
        "training_loss",
        "drift",
        "apart",
        "seconds",
    } <= set(stored[0])
    made = []

    def counted(run, source, *, seed, **others):
        made.append((run.name, seed))
        return train(run, source, seed=seed, **others)

    monkeypatch.setattr(small_net, "train", counted)
    run_some(source, path)
    assert made == [("psl-1e-3", 1), ("psl-prior-3e-4", 1)]
    assert small_net.read_results(path)[:2] == stored
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_run_stored_with_other_settings_is_refused(source, tmp_path):
    path = tmp_path / "results.jsonl"
    run_some(source, path, seeds=(0,))
    with pytest.raises(InputError, match="other settings"):
        small_net.is_finished(path, replace(QUICK, prox=0.1), 0, 2)


def record(name, seed=0, rounds=1000, **measures):
    keys = ("device_mean", "device_min", "ensemble", "merged", "training_loss", "drift", "apart")
    return {
        "name": name,
        "seed": seed,
        "rounds": rounds,
        "commit": "abcdef1234567+changes",
        **dict.fromkeys(keys, 0.25),
        **measures,
    }


def test_the_page_has_every_stored_run():
    names = [run.name for run in CATALOGUE]
    page = write_page([record(name) for name in [*names, "long-gone"]])
    rows = [line.split(" | ")[0] for line in page.splitlines()]
    assert all(f"| `{name}`" in rows for name in [*names, "long-gone"])
    assert all(f"## {group.title}\n\n{group.caption}" in page for group in GROUPS.values())
    assert "results.md" in page and "validation" in page and "`abcdef123+changes`" in page
    assert "**Missing**: nothing." in page


def test_the_page_says_what_no_seed_has_yet():
    names = [run.name for run in CATALOGUE if run.name not in ("meet", "prox-1")]
    assert "**Missing**: `prox-1`, `meet`." in write_page([record(name) for name in names])


def test_rows_are_means_over_seeds_and_lengths_are_kept_apart():
    stored = [
        record("frozen", 0, device_mean=0.40),
        record("frozen", 1, device_mean=0.42),
        record("frozen", 0, 20, device_mean=0.1),
    ]
    page = write_page(stored)
    assert "| `frozen` | 1000 | 2 | 41.0 ± 1.4 |" in page
    assert "| `frozen` | 20 | 1 | 10.0 |" in page
    assert "**Seeds**: 0, 1;" in page
    assert "## Probe alignment" not in page


def test_rows_are_compared_with_their_base_seed_by_seed_at_the_same_length():
    base = [record("meet", seed, device_mean=0.40 + seed / 100) for seed in range(3)]
    other = [record("meet-half", seed, device_mean=0.38 + seed / 100) for seed in range(3)]
    page = write_page(
        [
            *base,
            *other,
            record("meet-twice", 0, 2000),
            record("meet-1e-2", 5),
            record("together-twice", 0, 2000, device_mean=0.27),
        ]
    )
    assert "| `meet-half` | 1000 | 3 | 39.0 ± 1.0 | −2.0 (−2.0 to −2.0; 3 seeds) |" in page
    assert "| `meet` | 1000 | 3 | 41.0 ± 1.0 |  |" in page  # with itself it is not compared
    assert "| `meet-twice` | 2000 | 1 | 25.0 |  |" in page  # the base of those that are as long
    assert "| `together-twice` | 2000 | 1 | 27.0 | +2.0 (1 seed) |" in page
    assert "| `meet-1e-2` | 1000 | 1 | 25.0 |  |" in page  # nor one with this seed


def test_the_page_says_in_words_what_is_above_and_below_its_base():
    base = {0: 0.40, 1: 0.41, 2: 0.42}
    ahead = {"meet-half": [2, 2, 2], "apart": [-20, -21, -22], "together": [-2, 0, 2], "meet-1e-2": [3, 3]}
    stored = [record("meet", seed, device_mean=own) for seed, own in base.items()]
    for name, points in ahead.items():
        stored += [record(name, i, device_mean=base[i] + by / 100) for i, by in enumerate(points)]
    assert (
        "Above the base: `meet-half`; below the base: `apart`; not to be told from the base: `together`; "
        "with too few seeds to tell: `meet-1e-2`.\n"
    ) in write_page(stored)


def test_who_is_left_out_of_a_round_still_goes_to_its_leader(source):
    run = replace(MEET, device_lr=0.01, judging=Selection())
    training = trained(run, source)
    labels = torch.zeros(3, TINY.batch_size, dtype=torch.long)
    sent = [torch.randn(TINY.batch_size + 2, 4, 3, 3) for _ in range(3)]
    reply = torch.randn(TINY.batch_size, 4, 3, 3)
    found = training.led(1, {1: reply}, sent, labels)
    leader = torch.stack(sent)[:, TINY.batch_size :].mean(0)
    assert torch.equal(found[1][: TINY.batch_size], reply)
    for device in (0, 2):
        assert not found[device][: TINY.batch_size].any()
        assert torch.allclose(found[device][TINY.batch_size :], sent[device][TINY.batch_size :] - leader)


def test_what_the_command_line_lists_and_writes(tmp_path, monkeypatch, capsys):
    small_net.main(["--list", "--only", "psl-*", "frozen"])
    listed = capsys.readouterr().out
    assert "psl-prior-1e-3" in listed and "frozen " in listed and "sfl" not in listed
    with pytest.raises(InputError, match="no run 'psl'"):
        small_net.main(["--only", "psl"])
    with pytest.raises(SystemExit, match="2"):
        small_net.main(["--seeds", "x"])
    assert "'x' is no list of seeds; write 0,1,2" in capsys.readouterr().err
    monkeypatch.setattr(small_net, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(small_net, "PAGE", tmp_path / "study.md")
    with pytest.raises(InputError, match="no results"):
        small_net.main(["--table"])
    (tmp_path / "results.jsonl").write_text(json.dumps(record("frozen")) + "\n")
    small_net.main(["--table"])
    assert (tmp_path / "study.md").read_text() == write_page([record("frozen")])
    assert "| `frozen` |" in capsys.readouterr().out
