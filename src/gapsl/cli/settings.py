"""`gapsl settings`: everything that can be set, and how a command's options set it."""

from __future__ import annotations

from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypedDict, get_type_hints

import typer

from gapsl.analysis.settings import SettingInfo, all_settings
from gapsl.cli import running
from gapsl.cli.methods import tell
from gapsl.cli.running import Function, output
from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.run.api import compose
from gapsl.run.config import Config, merge, parse_assignment


def settings(
    name: Annotated[str | None, typer.Argument(help="Only this setting, or this section.")] = None,
) -> None:
    """List all settings, or one, with meaning and default, for a configuration file or --set."""
    groups = all_settings()
    if name is not None:
        chosen = {group: [info for info in infos if is_called(info, name)] for group, infos in groups.items()}
        known = {info.name for infos in groups.values() for info in infos}
        groups = {group: infos for group, infos in chosen.items() if infos}
        if not groups:
            raise InputError(f"unknown setting {name!r}; {nearest(name, known)}")
    for group, infos in groups.items():
        output.print(f"[bold]{group}[/bold]", highlight=False)
        for info in infos:
            tell(info, width=28)


def is_called(info: SettingInfo, name: str) -> bool:
    """Say whether a setting has this name, with its section or without, or is in a section of this name."""
    return name in (info.name, info.name.rpartition(".")[2]) or info.name.startswith(f"{name}.")


class RunOptions(TypedDict):
    """The options that say what is trained and how, wherever runs are; None: not given."""

    dataset: Annotated[
        str | None, typer.Option(help="digits, fashion-mnist, cifar10, cifar100 or folder:PATH.")
    ]
    data_dir: running.DataDir
    model: Annotated[
        str | None, typer.Option(help="small, mlp, vgg16, vit-base, vit-small, vit-tiny, vit-micro.")
    ]
    cut: Annotated[str | None, typer.Option(help="Where to cut the model: a number or a layer's name.")]
    devices: running.Devices
    partition: Annotated[
        str | None,
        typer.Option(
            help="Who has what: iid, dirichlet:ALPHA, shards:K, unequal:ALPHA or file:PATH, "
            "optionally with +noise:X, +colour:X or +rotation:DEGREES."
        ),
    ]
    participation: Annotated[float | None, typer.Option(help="Share of the devices in each round.")]
    rounds: running.Rounds
    epochs: Annotated[int | None, typer.Option(help="Epochs to train, instead of --rounds.")]
    batch_size: Annotated[int | None, typer.Option(help="Samples a device contributes to a round.")]
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of devices and server; --set tells them apart.")
    ]
    validation: Annotated[float | None, typer.Option(help="Share of the training data held out.")]
    evaluate_every: Annotated[int | None, typer.Option(help="Rounds between evaluations; default: an epoch.")]
    checkpoint_every: Annotated[int | None, typer.Option(help="Rounds between checkpoints; default: 20.")]
    device: running.Device
    processes: running.Processes
    fleet: running.FleetKind
    ray_address: running.RayAddress
    pretrained: Annotated[
        str | None, typer.Option(help="Weights to start from: a run, an export, or a file.")
    ]
    tensorboard: Annotated[bool | None, typer.Option("--tensorboard", help="Write TensorBoard events.")]
    config: running.ConfigFile
    preset: running.Preset
    set_: running.Assignments
    plugin: running.Plugins


def with_run_options(command: Function) -> Function:
    """Put the options of a run in the place of a command's `**settings`."""
    own = list(signature(command, eval_str=True).parameters.values())[:-1]
    kinds = get_type_hints(RunOptions, include_extras=True).items()
    more = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in kinds]
    vars(command)["__signature__"] = Signature([*own, *more])
    return command


def chosen_settings(options: RunOptions, **more: Any) -> Config:
    """Compose a configuration: preset, then file, then those options that are settings, then --set."""
    known = Config.model_fields
    given = {n: value for n, value in {**options, **more}.items() if n in known and value is not None}
    if (rate := options["lr"]) is not None:
        given |= {"device_optimizer": {"lr": rate}, "server_optimizer": {"lr": rate}}
    words = merge(given, *(parse_assignment(text) for text in options["set_"] or []))
    return compose(options["config"], preset_name=options["preset"], words=words)
