"""Partitions: every sample once, the promised heterogeneity, the same on every call."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gapsl.common.errors import InputError
from gapsl.data import Partition, load_partition, make_partition

SPECS = ["iid", "dirichlet:0.3,min=1", "shards:3", "unequal:0.5,min=1", "iid+noise:0.3"]

labels_of_some_size = st.builds(
    lambda n, classes, seed: (np.random.default_rng(seed).integers(0, classes, n), classes),
    st.integers(60, 400),
    st.integers(3, 8),
    st.integers(0, 1000),
)
balanced = np.arange(2000) % 10


def divide(spec, labels=balanced, *, devices=10, seed=0, **options) -> Partition:
    return make_partition(spec, labels, classes=int(labels.max()) + 1, devices=devices, seed=seed, **options)


def lists(partition):
    return [own.tolist() for own in partition.devices]


@given(
    labels_of_some_size,
    st.sampled_from(SPECS),
    st.integers(4, 9),
    st.integers(0, 5),
    st.sampled_from([0, 0.1]),
)
@settings(max_examples=120, deadline=None)
def test_every_training_sample_belongs_to_exactly_one(data, spec, devices, seed, validation):
    labels, _ = data
    made = divide(spec, labels, devices=devices, seed=seed, validation=validation)
    everyone = np.concatenate([*made.devices, made.validation])
    assert sorted(everyone.tolist()) == list(range(len(labels)))
    assert len(made.devices) == devices
    assert min(made.sizes) >= 1
    assert all(own.dtype == np.int64 and (np.diff(own) > 0).all() for own in made.devices)


@given(st.integers(1, 40), st.integers(40, 300), st.integers(0, 9))
@settings(deadline=None)
def test_iid_sizes_differ_by_one_at_most(devices, count, seed):
    sizes = divide("iid", np.arange(count) % 4, devices=devices, seed=seed).sizes
    assert max(sizes) - min(sizes) <= 1


@given(st.sampled_from(SPECS), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_the_same_arguments_give_the_same_partition_and_another_seed_another(spec, seed):
    once, again = divide(spec, seed=seed, validation=0.1), divide(spec, seed=seed, validation=0.1)
    assert lists(once) == lists(again)
    assert once.validation.tolist() == again.validation.tolist()
    assert lists(once) != lists(divide(spec, seed=seed + 1, validation=0.1))


def test_a_partition_is_the_one_it_always_was():
    # Written down, not computed: a change of numpy or of ours that moves samples must not go unnoticed.
    made = divide("dirichlet:0.5,min=1", np.arange(40) % 4, devices=4, seed=7)
    assert made.sizes == (10, 5, 14, 11)
    assert made.devices[0].tolist() == [1, 7, 13, 17, 21, 23, 27, 32, 33, 34]


@given(st.floats(0.05, 100), st.integers(2, 20), st.integers(1, 30), st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_dirichlet_and_unequal_give_every_device_its_minimum(alpha, devices, least, seed):
    assume(alpha >= 0.3 or least * devices < 200)
    for kind in ("dirichlet", "unequal"):
        try:
            made = divide(f"{kind}:{alpha},min={least}", devices=devices, seed=seed)
        except InputError as refusal:
            assert "min=" in str(refusal)  # noqa: PT017  (either outcome is right, and each is checked)
        else:
            assert min(made.sizes) >= least


def test_dirichlet_is_nearer_to_iid_the_greater_alpha_is():
    def spread(alpha):
        counts = divide(f"dirichlet:{alpha},min=1").label_counts(balanced, 10)
        return float(np.std(counts))

    assert spread(0.1) > 2 * spread(1) > 2 * spread(10) > 2 * spread(1000)
    assert spread(1000) < 2


@given(st.integers(0, 50), st.floats(0.3, 5))
@settings(max_examples=40, deadline=None)
def test_unequal_amounts_have_equal_label_proportions(seed, alpha):
    labels = np.repeat(np.arange(5), [100, 200, 300, 400, 1000])
    made = divide(f"unequal:{alpha}", labels, devices=5, seed=seed)
    expected = np.outer(made.sizes, np.bincount(labels) / len(labels))
    assert np.abs(made.label_counts(labels, 5) - expected).max() <= 2
    assert len(set(made.sizes)) > 1


@given(st.integers(1, 10), st.integers(1, 30), st.integers(0, 50))
@settings(max_examples=80, deadline=None)
def test_shards_give_each_device_exactly_k_classes(k, devices, seed):
    assume(k * devices >= 10)
    made = divide(f"shards:{k}", devices=devices, seed=seed)
    held = (made.label_counts(balanced, 10) > 0).sum(axis=1)
    assert held.tolist() == [k] * devices


def test_shards_of_balanced_classes_are_equal():
    assert set(divide("shards:2").sizes) == {200}


@given(st.floats(0.01, 0.9), labels_of_some_size)
@settings(max_examples=40, deadline=None)
def test_validation_is_stratified(fraction, data):
    labels, classes = data
    made = divide("iid", labels, devices=2, validation=fraction)
    held = np.bincount(labels[made.validation], minlength=classes)
    assert len(made.validation) == round(fraction * len(labels))
    assert np.abs(held - fraction * np.bincount(labels, minlength=classes)).max() <= 2


def test_label_counts_are_devices_by_classes():
    made = divide("dirichlet:0.5")
    counts = made.label_counts(balanced, 12)
    assert counts.shape == (10, 12)
    assert counts.sum(axis=1).tolist() == list(made.sizes)
    assert counts.sum(axis=0).tolist() == [200] * 10 + [0, 0]


def test_shifts_are_spread_over_the_devices():
    stds = [shift.values[0] for shift in divide("iid+noise:0.4", devices=5).shift]
    assert stds == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    angles = [shift.values[0] for shift in divide("iid+rotation:30", devices=5).shift]
    assert angles == pytest.approx([-30, -15, 0, 15, 30])
    colours = np.array([shift.values for shift in divide("iid+colour:0.2", devices=50).shift])
    assert colours.shape == (50, 6)
    assert len(np.unique(colours[:, 0])) == 50
    assert (np.abs(colours[:, :3] - 1) <= 0.2).all()
    assert (np.abs(colours[:, 3:]) <= 0.1).all()
    assert divide("iid").shift is None


def test_a_device_alone_has_nothing_to_differ_from():
    assert divide("iid+noise:0.4", devices=1).shift[0].values == (0.0,)
    assert divide("iid+rotation:30", devices=1).shift[0].values == (0.0,)


def test_a_shift_does_not_move_samples():
    assert lists(divide("dirichlet:0.5+rotation:30")) == lists(divide("dirichlet:0.5"))


def test_an_exponent_is_not_a_shift():
    assert lists(divide("dirichlet:1e+1")) == lists(divide("dirichlet:10"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dirichlet:0", "alpha must be a number above 0"),
        ("dirichlet:-1", "alpha must be a number above 0"),
        ("dirichlet:nan", "alpha must be a number above 0"),
        ("dirichlet:inf", "alpha must be a number above 0"),
        ("dirichlet", "alpha must be a number above 0"),
        ("unequal:much", "alpha must be a number above 0"),
        ("dirichlet:0.1,least=3", "write dirichlet:ALPHA or dirichlet:ALPHA,min=SAMPLES"),
        ("dirichlet:0.1,min=201", "10 devices with 201 samples or more need 2010.*min=200"),
        ("dirichlet:0.01,min=150", "in 1000 draws .* lower it with min="),
        ("diriclet:0.1", "did you mean 'dirichlet'"),
        ("fil:x", "did you mean 'file'"),
        ("", r"write <labels>\[\+<shift>\]"),
        ("iid:3", "iid takes no argument"),
        ("shards:0", "write shards:K"),
        ("shards:two", "write shards:K"),
        ("shards:11", "there are 10 classes; choose K up to 10"),
        ("iid+nois:0.1", "did you mean 'noise'"),
        ("iid+noise", "strength must be a number"),
        ("iid+noise:-1", "strength must be a number"),
        ("iid+rotation:181", "up to 180"),
        ("iid+colour:2", "choose up to 1"),
        ("iid+noise:0.1+colour:0.1", "one shift only"),
    ],
)
def test_a_spec_that_cannot_be_used_says_why(spec, message):
    with pytest.raises(InputError, match=message):
        divide(spec)


def test_numbers_that_cannot_be_used_say_why():
    with pytest.raises(InputError, match="at least 1"):
        divide("iid", devices=0)
    with pytest.raises(InputError, match="5 devices but 3 training samples"):
        divide("iid", np.array([0, 1, 2]), devices=5)
    with pytest.raises(
        InputError, match="5 devices with 1 each cannot hold all 10 classes; choose K from 2 up"
    ):
        divide("shards:1", devices=5)
    with pytest.raises(InputError, match="fraction to hold out"):
        divide("iid", validation=1.0)
    with pytest.raises(InputError, match=r"device \d would get no samples"):
        divide("shards:1", np.array([0] * 9 + [1]), devices=6)
    with pytest.raises(InputError, match="labels from 0 to 9 for 5 classes"):
        make_partition("iid", balanced, classes=5, devices=2, seed=0)


@pytest.mark.parametrize("spec", ["dirichlet:0.5", "iid+noise:0.3", "iid+colour:0.3"])
def test_a_saved_partition_comes_back_as_it_was(spec, tmp_path):
    made = divide(spec, validation=0.1, fingerprint="abc", seed=3)
    made.save(tmp_path / "new" / "p.json")
    for back in (load_partition(tmp_path / "new" / "p.json"), divide(f"file:{tmp_path}/new/p.json", seed=9)):
        assert lists(back) == lists(made)
        assert back.validation.tolist() == made.validation.tolist()
        assert (back.shift, back.spec, back.seed) == (made.shift, made.spec, made.seed)
        assert (back.samples, back.fingerprint) == (2000, "abc")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["p.json"]


def test_a_saved_partition_must_fit_the_data_and_the_devices(tmp_path):
    path = tmp_path / "p+q.json"
    divide("iid", fingerprint="abc").save(path)
    assert divide(f"file:{path}", fingerprint="abc").sizes == (200,) * 10
    with pytest.raises(InputError, match="divides 2000 samples, the dataset has 1000"):
        divide(f"file:{path}", balanced[:1000])
    with pytest.raises(InputError, match="other data"):
        divide(f"file:{path}", fingerprint="xyz")
    with pytest.raises(InputError, match="is for 10 devices; set devices = 10"):
        divide(f"file:{path}", devices=5)
    with pytest.raises(InputError, match="holds nothing out"):
        divide(f"file:{path}", validation=0.1)


def test_a_saved_partition_can_be_given_a_shift_once(tmp_path):
    divide("iid").save(tmp_path / "plain.json")
    shifted = divide(f"file:{tmp_path}/plain.json+noise:0.5")
    assert shifted.shift[-1].values == (0.5,)
    shifted.save(tmp_path / "shifted.json")
    with pytest.raises(InputError, match="has a shift already"):
        divide(f"file:{tmp_path}/shifted.json+noise:0.5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2, this gapsl reads 1; .* make it again from spec 'iid' and seed 0"),
        ({"schema": "one"}, "schema 'one'"),
        ({"devices": []}, "no devices"),
        ({"devices": [[0], []]}, "device 1 has no samples"),
        ({"devices": [[0, 1], [1]]}, "sample 1 is listed twice"),
        ({"devices": [[0], [1]], "validation": [1]}, "sample 1 is listed twice"),
        ({"devices": [[0], [2000]]}, "device 1 has an index outside 0 to 1999"),
        ({"devices": [[0], [-1]]}, "device 1 has an index outside"),
        ({"devices": [[0], [1.5]]}, "device 1 is not a list of whole numbers"),
        ({"devices": 3}, "damaged"),
        ({"samples": "many"}, "samples is 'many'"),
        ({"shift": [{"kind": "blur", "values": [1]}] * 10}, "is no shift"),
        ({"shift": [{"kind": "noise", "values": [1]}]}, "1 shifts for 10 devices"),
        ({"seed": None}, "seed is None"),
    ],
)
def test_a_changed_file_is_refused_by_what_is_wrong_in_it(change, message, tmp_path):
    path = tmp_path / "p.json"
    divide("iid").save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=message):
        load_partition(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe\x00", b"{}", b"[" * 100_000])
def test_a_file_that_is_no_partition_is_refused(content, tmp_path):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"p\.json is (not a|no) partition"):
        load_partition(path)


def test_a_half_written_file_and_a_missing_one_are_refused(tmp_path):
    path = tmp_path / "p.json"
    divide("iid").save(path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(InputError, match="not a partition"):
        load_partition(path)
    with pytest.raises(InputError, match=r"cannot read the partition .*none\.json"):
        load_partition(tmp_path / "none.json")
