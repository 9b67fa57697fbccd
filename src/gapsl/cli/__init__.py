"""The command line: one thin file per subcommand, which parses, calls the API and prints.

`main` finds them by name and loads the one that is called. What users of Python want, too, lives below.
"""

import os

# Before grpc is loaded, which reads it then: its own lines about failed handshakes would stand among ours.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from gapsl.cli.main import main

__all__ = ["main"]
