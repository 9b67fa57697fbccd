"""`gapsl certs`: who may take part over the network."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from gapsl.analysis.formats import counted
from gapsl.cli.running import guarded, output, say
from gapsl.common.errors import InputError
from gapsl.network.tls.names import (
    CA,
    CA_KEY,
    FOLDER,
    REVOKED,
    SERVERS,
    authority_files,
    check_name,
    check_server,
    option,
)

if TYPE_CHECKING:
    from gapsl.network.tls.authority import Authority, Issued

SOON = 30  # days before its end in which a certificate is warned of

app = typer.Typer(
    help="Make and revoke the certificates that servers and devices show each other (mutual TLS).",
    epilog="In this order: gapsl certs init, gapsl certs server --host HOST, and for each device gapsl certs "
    "device NAME --pack. Each says what to copy where; docs/certificates.md has the whole.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Option(help="The authority's folder.")]
Days = Annotated[int | None, typer.Option(min=1, max=3650, help="For how long it is valid; default: 365.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the certificate and the key that are there.")]
Pack = Annotated[bool, typer.Option("--pack", help="Also write NAME.tar, to carry to the machine.")]
Out = Annotated[Path | None, typer.Option(help="Pack into this file instead of NAME.tar.")]


@app.command("init", epilog="Example: gapsl certs init. Once a fleet, on a machine you keep.")
@guarded
def init(
    folder: Folder = FOLDER,
    days: Annotated[int, typer.Option(min=1, max=36500, help="For how long it is valid.")] = 3650,
) -> None:
    """Make the authority that signs all certificates of a fleet."""
    made = _authority().create(folder, days=days)
    say(f"made an authority in {folder}, valid until {made.certificate.not_valid_after_utc:%Y-%m-%d}")
    say(f"  {folder / CA}      goes to every machine of the fleet")
    say(f"  {folder / CA_KEY}  never leaves this machine: with it, anybody makes devices and servers")
    here = option(folder)
    say(f"next: gapsl certs server --host HOST{here}")
    say(f"then, for each device: gapsl certs device NAME --pack{here}")


@app.command(
    "server",
    epilog="Example: gapsl certs server --host train.example.org --host 10.0.0.5. The parameter server gets "
    "its own: gapsl certs server --name parameter-server --host ...",
)
@guarded
def server(
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A DNS name or IP address that devices call it by; may be repeated. "
            "Default: those it had before, else this machine's."
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="server or parameter-server.")] = "server",
    days: Days = None,
    folder: Folder = FOLDER,
    force: Force = False,
    packed: Pack = False,
    out: Out = None,
) -> None:
    """Make a server's certificate, for the hosts that devices call it by.

    With --pack alone, a certificate that is there already is packed as it is.
    """
    check_server(name)
    authority = _authority()(folder)
    archive = destination(name, packed, out, force)
    if not (archive and keeps(authority, name, anew=force or bool(host or days))):
        hosts = host or authority.hosts(name)
        issued = authority.issue(name, hosts, days=days, force=force)
        say(f"made the {name}'s certificate for {', '.join(hosts)}, valid until {issued.ends[:10]}")
    command = (
        "gapsl serve --config run.yaml --listen 0.0.0.0:7443"
        if name == "server"
        else "gapsl parameter-server --names NAME,... --listen 0.0.0.0:7444"
    )
    tell_files(authority, name, archive, command)


@app.command("device", epilog="Example: gapsl certs device camera-1 --pack. Renew with --force.")
@guarded
def device(
    name: Annotated[str, typer.Argument(help="The device's name, as in `gapsl join --name`.")],
    days: Days = None,
    folder: Folder = FOLDER,
    force: Force = False,
    packed: Pack = False,
    out: Out = None,
) -> None:
    """Make a device's certificate.

    With --pack alone, a certificate that is there already is packed as it is.
    """
    check_name(name)
    authority = _authority()(folder)
    archive = destination(name, packed, out, force)
    if not (archive and keeps(authority, name, anew=force or days is not None)):
        issued = authority.issue(name, days=days, force=force)
        say(f"made the certificate of {name}, valid until {issued.ends[:10]}")
        earlier = [one for one in authority.of(name) if one.works and one.serial != issued.serial]
        if earlier:
            say(
                f"note: what {name} was given before goes on working until it expires. If that key is lost, "
                f"revoke all, then come back here: gapsl certs revoke {name}{option(folder)}"
            )
    tell_files(authority, name, archive, f"gapsl join --server HOST:PORT --name {name}")


@app.command("revoke", epilog="Example: gapsl certs revoke camera-1. To let it in again: a new certificate.")
@guarded
def revoke(
    name: Annotated[str, typer.Argument(help="The device.")],
    folder: Folder = FOLDER,
) -> None:
    """Revoke every certificate a device was ever given."""
    number = _authority()(folder).revoke(name)
    say(f"revoked {counted(number, 'certificate')} of {name}" if number else f"{name} was revoked before")
    say(f"servers that use this folder refuse {name} from now on, without a restart; on other machines, copy")
    say(f"  {folder / REVOKED}  over the one that the server and the parameter server have")
    say(f"to let {name} in again: gapsl certs device {name} --force{option(folder)}")


@app.command("list", epilog="Example: gapsl certs list.")
@guarded
def list_certificates(folder: Folder = FOLDER) -> None:
    """List who has a certificate, until when, and what is revoked."""
    authority = _authority()(folder)
    newest = list({one.name: one for one in authority.issued()}.values())
    output.print(table(newest) if newest else "no certificates yet")
    say(f"authority: {folder}, valid until {authority.certificate.not_valid_after_utc:%Y-%m-%d}")
    for one in newest:
        warn_of_end(one, folder)
    for key in sorted(folder.rglob("*-key.pem")):
        if key.stat().st_mode & 0o077:
            say(f"warning: others on this machine can read {key}; close it with: chmod 600 {key}")


def table(issued: Iterable[Issued]) -> Table:
    """Return a row for each certificate, by name."""
    made = Table(box=None, pad_edge=False)
    made.add_column("name", overflow="fold")
    for heading in ("kind", "expires in", "revoked"):
        made.add_column(heading, no_wrap=True)
    for one in sorted(issued, key=lambda one: one.name):
        made.add_row(one.name, one.kind, span(one.days_left()), "yes" if one.revoked else "")
    return made


def span(days: float) -> str:
    """Say in how many days something ends."""
    return counted(ceil(days), "day") if days > 0 else "expired"


def warn_of_end(issued: Issued, folder: Path) -> None:
    """Say what to do about a certificate that ends soon or has ended."""
    name, days = issued.name, issued.days_left()
    if issued.revoked or days > SOON:
        return
    again = f"server --name {name}" if name in SERVERS else f"device {name}"
    ends = f"expires in {span(days)}" if days > 0 else "has expired"
    say(f"warning: the certificate of {name} {ends}; renew it: gapsl certs {again} --force{option(folder)}")


def destination(name: str, packed: bool, out: Path | None, force: bool) -> Path | None:
    """Return where to pack the files, checked before anything is made; None if it was not asked for."""
    if not packed and out is None:
        return None
    path = out or Path(f"{name}.tar")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}; make it, or choose another place with --out")
    if path.is_dir() or (path.exists() and not force):
        raise InputError(
            f"{path} exists already; choose another with --out, or overwrite a file with --force"
        )
    return path


def keeps(authority: Authority, name: str, *, anew: bool) -> bool:
    """Say whether a party keeps the certificate it has; one that is of no use is refused."""
    files = authority_files(authority.folder, name)
    if anew or not (files.certificate.exists() and files.key.exists()):
        return False
    current = authority.current(name)
    if current is None or not current.works:
        raise InputError(f"the certificate of {name} is expired, revoked or unknown; replace it with --force")
    say(f"{name} has a certificate already, valid until {current.ends[:10]}; it is packed as it is")
    return True


def tell_files(authority: Authority, name: str, archive: Path | None, command: str) -> None:
    """Say which files a party needs and how it uses them; pack them if asked."""
    party = f"the {name}" if name in SERVERS else name
    if archive is not None:
        authority.pack(name, archive)
        say(f"packed: {archive}; carry it to the machine of {party}, and there:")
        say(f"  tar xf {archive.name} && {command} --certs {name}")
        say(f"then delete {archive.name} on both: it has the secret key in it")
    else:
        say(f"the machine of {party} needs these in a folder DIR (or pack them with --pack):")
        notes = ("", "", "  secret: for its owner alone", "  again after every `gapsl certs revoke`")
        for file, note in zip(authority.files(name), notes, strict=False):
            say(f"  {file}{note}")
        say(f"there: {command} --certs DIR")
    say(f"{CA_KEY} never leaves this machine")


def _authority() -> type[Authority]:
    try:
        from gapsl.network.tls.authority import Authority
    except ImportError:  # an extra: devices need no certificates made
        raise InputError('certificates need cryptography; pip install "gapsl[tls]"') from None
    return Authority
