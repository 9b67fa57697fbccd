"""A device process loads what a device needs: no method, nothing that draws, no reproduction."""

import subprocess
import sys

import pytest

OURS = ("methods", "options", "run", "fleets", "analysis")
OTHERS = ("gapsl_reproduction", "matplotlib", "cryptography", "prometheus_client", "tensorboard", "pandas")
FORBIDDEN = (*(f"gapsl.{room}" for room in OURS), *OTHERS)


@pytest.mark.parametrize("module", ["network.device.agent", "network.device.device_data", "cli.join"])
def test_a_device_loads_no_method_and_no_plot(module):
    program = f"import sys, gapsl.{module}; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = ended.stdout.split()
    assert f"gapsl.{module}" in loaded
    assert [name for name in loaded if name.startswith(FORBIDDEN)] == []
