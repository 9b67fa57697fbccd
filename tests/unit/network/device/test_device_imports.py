"""A device process loads what a device needs: no method, nothing that draws, no reproduction."""

import subprocess
import sys

OURS = ("methods", "options", "run", "fleets", "analysis", "inference", "dashboard")
OTHERS = (
    "gapsl_reproduction",
    "matplotlib",
    "cryptography",
    "prometheus_client",
    "tensorboard",
    "mlflow",
    "pandas",
)
FORBIDDEN = (*(f"gapsl.{room}" for room in OURS), *OTHERS)


def test_a_device_loads_no_method_and_no_plot():
    program = "import sys, gapsl.cli.join; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = ended.stdout.split()
    assert {"gapsl.cli.join", "gapsl.network.device.agent", "gapsl.network.device.device_data"} <= set(loaded)
    assert [name for name in loaded if name.startswith(FORBIDDEN)] == []
