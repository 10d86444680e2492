"""`compiler_options` of jax.jit: those that JAX's CPU client refuses, with its text, and those that hlokit refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.interop.pjrt.compile_flags import check, threads
from tests.jax.pjrt.harness import python

BOOL, INT, FLOAT = (
    "xla_embed_ir_in_executable",
    "xla_backend_optimization_level",
    "xla_gpu_auto_spmd_partitioning_memory_budget_ratio",
)
ENUM, ENUMS, TEXT, TEXTS = (
    "xla_step_marker_location",
    "xla_gpu_enable_command_buffer",
    "xla_gpu_ptx_file",
    "xla_disable_hlo_passes",
)

CASES: list[tuple[str, Any]] = [
    *((BOOL, value) for value in (True, "True", "true", "TRUE", "1", 1, 1.0, 2.5, "False", "", "nan")),
    *((INT, value) for value in (1, "1", " 1", "-1", "x", 1.5, "1.5", True, "True", 2**40, "99999999999", "")),
    *((FLOAT, value) for value in (0.5, "0.5", "1e-3", "nan", 1, "x", True, "")),
    *((ENUM, value) for value in ("STEP_MARK_AT_ENTRY", 1, "1", 7, "7", "X", 1.5, True, "step_mark_at_entry")),
    *((ENUMS, value) for value in ("FUSION", "FUSION,CUBLAS", "FUSION,X", "+FUSION", "", 1, "1", "fusion")),
    *((TEXTS, value) for value in ("a,b", "a b", "", 1)),
    *(("xla_dump_to", value) for value in ("", 1, True, 1.0)),
    (TEXT, "f"),
    ("xla_gpu_experimental_autotune_backends", "TRITON"),
    ("xla_gpu_experimental_autotune_backends", "X"),
    ("xla_dump_max_hlo_modules", 200),
    ("xla_cpu_enable_fast_math", True),
    ("xla_backend_extra_options", "a=b"),
    ("xla_tpu_enable_async_collective_fusion", True),
    ("no_such_option", 1),
    ("num_replicas", 2),
    ("", 1),
]


@pytest.mark.outside
def test_values_are_taken_and_refused_as_jax_does() -> None:
    import jax

    def refusal(name: str, value: Any) -> str:
        try:
            jax.jit(lambda x: x, compiler_options={name: value})(1.0)
        except jax.errors.JaxRuntimeError as error:
            return str(error).removeprefix("INVALID_ARGUMENT: ")
        return ""

    def our_refusal(name: str, value: Any) -> str:
        try:
            check({name: value})
        except ArgumentError as error:
            return str(error)
        return ""

    assert jax.default_backend() == "cpu"
    refusals = [refusal(*case) for case in CASES]
    assert [our_refusal(*case) for case in CASES] == refusals
    assert sum(map(bool, refusals)) > 30


@pytest.mark.parametrize(
    ("name", "value"), [("xla_cpu_ftz", True), ("xla_cpu_max_isa", "AVX2"), ("xla_disable_all_hlo_passes", True)]
)
def test_what_hlokit_does_not_do_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"{name}={value}"):
        check({name: value})


def test_values_that_ask_for_nothing_are_taken() -> None:
    options = {"xla_cpu_ftz": False, "xla_cpu_max_isa": "", "xla_dump_hlo_as_html": True, "xla_gpu_ftz": True}
    assert check(options) == {}
    assert check({"xla_dump_hlo_as_proto": True}) == {"xla_dump_hlo_as_proto": "True"}
    with pytest.raises(UnsupportedError, match="xla_dump_hlo_as_html"):
        check({**options, "xla_dump_to": "/tmp"})


@pytest.mark.parametrize("value", [0, -3, "many", 1.5, True])
def test_numbers_of_threads_are_checked(value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"hlokit_threads={value} is not a number of threads"):
        threads({"hlokit_threads": value})


def test_the_option_and_the_environment_say_how_many_threads() -> None:
    code = """
import jax, jax.numpy as jnp
from hlokit.cpu.jit import pool
for options in ({}, {"hlokit_threads": 1}, {"hlokit_threads": "3"}):
    x = jnp.ones((256, 256))
    jax.jit(lambda x: jnp.sin(x) @ x, compiler_options=options)(x).block_until_ready()
    print(sorted(count for count, _ in pool._pools))
try:
    jax.jit(lambda x: x + 1, compiler_options={"hlokit_threads": 0})(1.0)
except jax.errors.JaxRuntimeError as error:
    print(error)
"""
    done = python("-c", code, HLOKIT_THREADS="4")
    refused = "INVALID_ARGUMENT: the compile option hlokit_threads=0 is not a number of threads: expected 1 or more"
    assert done.stdout.splitlines() == ["[4]", "[1, 4]", "[1, 3, 4]", refused], done.stderr


_CODE = """
import sys, jax
folder = sys.argv[1]
print(jax.jit(lambda x: x + 1, compiler_options={"xla_dump_to": folder, "xla_cpu_enable_fast_math": True})(1.0))
for options in ({"no_such_option": 1}, {"xla_cpu_ftz": True}):
    try:
        jax.jit(lambda x: x + 1, compiler_options=options)(1.0)
    except jax.errors.JaxRuntimeError as error:
        print(error)
"""


def test_options_reach_the_compiler(tmp_path: Path) -> None:
    done = python("-c", _CODE, str(tmp_path))
    assert done.stdout.splitlines() == [
        "2.0",
        "INVALID_ARGUMENT: No such compile option: 'no_such_option'",
        "UNIMPLEMENTED: the compile option xla_cpu_ftz=True is not supported",
    ], done.stderr
    assert any("_lambda" in file.name and "before_optimizations" in file.name for file in tmp_path.iterdir())
