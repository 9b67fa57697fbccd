"""Settings say what is wrong with a value instead of taking it for another."""

import pytest

from gapsl.common.errors import InputError
from gapsl.network.protocol.settings import Network
from gapsl.run.config import make_config, parse_assignment


def test_a_bare_off_is_the_word_where_a_word_is_meant():
    assert make_config(parse_assignment("angles=off")).angles == "off"


@pytest.mark.parametrize("text", ["rounds=true", "devices=True", "gapsl.eta=yes", "device_optimizer.lr=on"])
def test_yes_is_no_number(text):
    with pytest.raises(InputError, match="give a value"):
        make_config(parse_assignment(text))


def test_yes_is_a_boolean():
    assert make_config(parse_assignment("tensorboard=yes")).tensorboard is True


@pytest.mark.parametrize(
    "text",
    [
        "server_optimizer.lr=1e300",
        "device_optimizer.weight_decay=1e300",
        "device_optimizer.weight_decay=inf",
        "server_optimizer.clip=.nan",
        "probe_steps=100000000",
        "batch_size=100000000000",
        "calibration_tau=inf",
    ],
)
def test_what_no_machine_can_compute_with_is_refused(text):
    with pytest.raises(InputError, match=text.partition("=")[0]):
        make_config(parse_assignment(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch_size=abc", "batch_size: give a whole number (got 'abc')"),
        ("rounds=0", "rounds: give 1 or more (got 0)"),
        ("server_optimizer.lr=-1", "server_optimizer.lr: give more than 0 (got -1)"),
        ("participation=2", "participation: give 1 or less (got 2)"),
        ("tensorboard=perhaps", "tensorboard: give true or false (got 'perhaps')"),
        ("gapsl.eta=x", "gapsl.eta: give a number (got 'x')"),
        ("balance=all", "balance: give 'none' or 'classes' (got 'all')"),
        ("server_optimizer=3", "server_optimizer: it is a section: give settings by name (got 3)"),
    ],
)
def test_a_wrong_value_is_answered_in_plain_words(text, said):
    with pytest.raises(InputError) as refused:
        make_config(parse_assignment(text))
    assert str(refused.value) == said


def test_the_network_is_held_to_the_same():
    with pytest.raises(ValueError, match="give a value"):
        Network(least=True)


def test_a_learning_rate_without_an_optimizer_says_where_it_belongs():
    with pytest.raises(InputError, match=r"server_optimizer.lr; both at once: --lr 0.1"):
        make_config({"lr": 0.1})


@pytest.mark.parametrize("value", ["[" * 3000, "{" * 3000])
def test_values_nested_without_end_are_refused(value):
    with pytest.raises(InputError, match="not valid YAML"):
        parse_assignment(f"dataset={value}")
