"""hlokit in place of JAX's CPU client, and the CPU's flags."""

from __future__ import annotations

import pytest

from tests.jax.pjrt.harness import checks, outcomes, python, said_of_hlokit


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return outcomes("as_cpu.py", HLOKIT_AS_CPU="1", JAX_PLATFORMS="")


@pytest.mark.parametrize("name", checks("as_cpu.py"))
def test_as_cpu(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]


_COUNT = """
import jax, jax.numpy as jnp
client = jax.devices()[0].client
print(jax.default_backend(), "hlokit" in client.platform_version, len(jax.devices()))
x = jax.device_put(jnp.arange(len(jax.devices()) * 2.0), jax.sharding.NamedSharding(
    jax.make_mesh((len(jax.devices()),), "a"), jax.P("a")))
print(jax.jit(lambda x: x + 1)(x).sum(), len(x.addressable_shards))
"""


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=3", "HLOKIT_AS_CPU": "1"}, ""),
        ({"JAX_NUM_CPU_DEVICES": "3", "HLOKIT_AS_CPU": "1", "JAX_PLATFORMS": "cpu"}, ""),
        (
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
            "import jax, hlokit.interop.jax as hj; hj.use(as_cpu=True); jax.config.update('jax_num_cpu_devices', 3)",
        ),
        ({"HLOKIT_NUM_DEVICES": "3", "HLOKIT_AS_CPU": "1", "JAX_NUM_CPU_DEVICES": "2"}, ""),
    ],
    ids=["XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "jax_num_cpu_devices", "HLOKIT_NUM_DEVICES"],
)
def test_number_of_cpus(variables: dict[str, str], code: str) -> None:
    done = python("-c", code + _COUNT, **{"JAX_PLATFORMS": "", **variables})
    assert done.stdout.splitlines() == ["cpu True 3", "21.0 3"], done.stderr
    assert not said_of_hlokit(done)


def test_flags_of_the_cpu_count_for_the_platform_hlokit() -> None:
    done = python("-c", _COUNT, XLA_FLAGS="--xla_force_host_platform_device_count=3")
    assert done.stdout.splitlines() == ["hlokit True 3", "21.0 3"], done.stderr


@pytest.mark.parametrize("count", ["0", "100000"])
def test_numbers_that_no_client_has(count: str) -> None:
    done = python("-c", _COUNT, HLOKIT_AS_CPU="1", JAX_NUM_CPU_DEVICES=count, JAX_PLATFORMS="")
    assert done.returncode == 1
    assert f"num_devices={count}: expected a number from 1 to 256" in done.stderr


def test_one_platform_a_process() -> None:
    done = python("-c", "import jax; jax.devices()", HLOKIT_AS_CPU="1")
    assert done.returncode == 1
    assert "hlokit is JAX's platform 'hlokit' in this process: it cannot be 'cpu' as well" in done.stderr
