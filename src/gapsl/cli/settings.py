"""`gapsl settings`: everything that can be set."""

from __future__ import annotations

from gapsl.analysis.settings import all_settings
from gapsl.cli.methods import tell
from gapsl.cli.running import output


def settings() -> None:
    """List all settings with meaning and default, for a configuration file or --set."""
    for group, infos in all_settings().items():
        output.print(f"[bold]{group}[/bold]", highlight=False)
        for info in infos:
            tell(info, width=28)
