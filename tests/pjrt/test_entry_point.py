"""JAX finds the plugin through its entry point, and leaves it alone if told to."""

import pytest

from tests.pjrt.harness import python

_CODE = """
import jax
print(jax.default_backend(), sorted(d.platform for d in jax.local_devices()))
from jax._src import xla_bridge
print("hlokit" in xla_bridge._backend_factories)
import sys
print("llvmlite" in sys.modules)
"""


@pytest.mark.parametrize(
    ("platforms", "default", "registered"),
    [("", "hlokit", True), ("hlokit", "hlokit", True), ("cpu,hlokit", "cpu", True), ("cpu", "cpu", False)],
)
def test_who_is_asked_for(platforms: str, default: str, registered: bool) -> None:
    done = python("-c", _CODE, JAX_PLATFORMS=platforms)
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == f"{default} ['{default}']"
    assert second == str(registered)
    assert third == str(registered), "a process that has no use for the plugin does not load its compiler"
    assert "experimental" not in done.stderr
