"""hlokit is JAX's platform where it was asked for, and nothing of it is loaded elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.jax.pjrt.harness import ROOT, python, said_of_hlokit

_CODE = """
import jax
print(jax.default_backend(), sorted(d.platform for d in jax.local_devices()))
from jax._src import xla_bridge
print("hlokit" in xla_bridge._backend_factories)
import sys
print(any(name == "hlokit" or name.startswith("hlokit.") for name in sys.modules), "llvmlite" in sys.modules)
print(jax.numpy.arange(3.0).sum())
"""

_STAND_IN = """
from jax._src import xla_bridge

class Client:
    platform = "standin"
    platform_version = "0"
    def device_count(self): return 1
    def local_devices(self): return []
    def process_index(self): return 0

def initialize():
    xla_bridge._nonexperimental_plugins.add("standin")
    xla_bridge.register_backend_factory("standin", Client, priority=500, fail_quietly=False)
"""
"""A GPU's plugin to JAX, as far as the choice of the default goes."""


@pytest.mark.parametrize(
    ("platforms", "default", "registered"),
    [("", "cpu", False), ("hlokit", "hlokit", True), ("cpu,hlokit", "cpu", True), ("cpu", "cpu", False)],
)
def test_who_is_asked_for(platforms: str, default: str, registered: bool) -> None:
    done = python("-c", _CODE, JAX_PLATFORMS=platforms, HLOKIT_AS_CPU="0")
    assert done.returncode == 0, done.stderr
    first, second, third, fourth = done.stdout.splitlines()
    assert first == f"{default} ['{default}']"
    assert second == str(registered)
    assert third == f"{registered} {registered}", "a process that has no use for hlokit does not import it"
    assert fourth == "3.0"
    assert not said_of_hlokit(done)


@pytest.mark.parametrize(
    "choice",
    [
        "jax.config.update('jax_platforms', 'hlokit,cpu')",
        "import hlokit.interop.jax; hlokit.interop.jax.use(); hlokit.interop.jax.use()",
    ],
    ids=["config", "use"],
)
def test_chosen_by_code(choice: str) -> None:
    more = "print(jax.config.jax_platforms); import hlokit.interop.jax; hlokit.interop.jax.use()"
    done = python("-c", f"import jax\n{choice}\n{_CODE}\n{more}", JAX_PLATFORMS="")
    assert done.stdout.splitlines() == ["hlokit ['hlokit']", "True", "True True", "3.0", "hlokit,cpu"], done.stderr
    assert not said_of_hlokit(done)


def test_use_goes_in_front_of_the_platforms_that_were_asked_for() -> None:
    code = "import jax, hlokit.interop.jax; hlokit.interop.jax.use(); print(jax.config.jax_platforms)"
    assert python("-c", code, JAX_PLATFORMS="cuda,cpu").stdout == "hlokit,cuda,cpu\n"


def test_use_comes_before_the_backends() -> None:
    code = """
import jax, hlokit, hlokit.interop.jax
jax.devices()
try:
    hlokit.interop.jax.use()
except hlokit.ArgumentError as error:
    print(error)
print(jax.default_backend())
"""
    done = python("-c", code, JAX_PLATFORMS="")
    assert "its backends already: cpu, with the default 'cpu'" in done.stdout, done.stderr
    assert done.stdout.endswith("\ncpu\n")


def _beside_a_stand_in(folder: Path, seed: int) -> str:
    (folder / "standin_plugin.py").write_text(_STAND_IN)
    info = folder / "standin-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "entry_points.txt").write_text("[jax_plugins]\nstandin = standin_plugin\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: standin\nVersion: 0\n")
    code = "import jax, sys; print(jax.default_backend(), 'hlokit' in sys.modules)"
    path = os.pathsep.join([str(ROOT / "src"), str(folder)])
    done = python("-c", code, JAX_PLATFORMS="", PYTHONHASHSEED=str(seed), PYTHONPATH=path)
    return done.stdout or done.stderr


@pytest.mark.parametrize("seed", range(3))
def test_gpu_plugin_stays_the_default(seed: int, tmp_path: Path) -> None:
    assert _beside_a_stand_in(tmp_path, seed) == "standin False\n"


@pytest.mark.slow
def test_gpu_plugin_stays_the_default_for_any_hash_seed(tmp_path: Path) -> None:
    assert [_beside_a_stand_in(tmp_path, seed) for seed in range(50)] == ["standin False\n"] * 50


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A path on which hlokit cannot be imported, but its entry point is there."""
    (tmp_path / "hlokit").mkdir()
    (tmp_path / "hlokit" / "__init__.py").write_text("raise ValueError('broken by design')\n")
    return os.pathsep.join([str(tmp_path), str(ROOT / "src")])


def test_broken_package_does_no_harm(broken: str) -> None:
    done = python("-c", _CODE, JAX_PLATFORMS="", PYTHONPATH=broken)
    assert done.stdout.splitlines() == ["cpu ['cpu']", "False", "False False", "3.0"], done.stderr
    assert not said_of_hlokit(done)


@pytest.mark.parametrize(
    ("platform", "choice"),
    [("hlokit", {"JAX_PLATFORMS": "hlokit,cpu"}), ("cpu", {"JAX_PLATFORMS": "", "HLOKIT_AS_CPU": "1"})],
)
def test_broken_package_is_an_error_where_it_is_asked_for(broken: str, platform: str, choice: dict[str, str]) -> None:
    done = python("-c", _CODE, PYTHONPATH=broken, **choice)
    assert done.returncode == 1
    assert f"Unable to initialize backend '{platform}': hlokit: ValueError: broken by design" in done.stderr


def test_older_jax_is_declined() -> None:
    older = "import jax; jax.__version__, jax.__version_info__ = '0.7.0', (0, 7, 0)\n"
    assert python("-c", older + _CODE, JAX_PLATFORMS="").stdout.startswith("cpu ['cpu']\nFalse\nFalse False\n")
    done = python("-c", older + _CODE)
    assert done.returncode == 1
    assert "hlokit works with jax 0.10.2 and newer, this is 0.7.0" in done.stderr.splitlines()[-1]
