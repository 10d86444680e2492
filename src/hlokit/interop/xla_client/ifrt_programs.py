"""`_xla.ifrt_programs`: programs and compile options for `Client.compile_ifrt_program`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlokit.interop.xla_client import options as _options


@dataclass(frozen=True)
class Program:
    """A program for `Client.compile_ifrt_program`. `is_hlo`: as `Client.compile` takes it."""

    content: Any
    is_hlo: bool


@dataclass(frozen=True)
class CompileOptions:
    """Options of `Client.compile_ifrt_program`."""

    options: _options.CompileOptions | None = None
    host_callbacks: Sequence[Any] = ()


def make_hlo_program(mlir_module: Any, /) -> Program:
    """A program of anything that `Client.compile` takes."""
    return Program(mlir_module, is_hlo=True)


def make_plugin_program(data: str | bytes, /) -> Program:
    """A program in a plugin's own form, which no client here compiles."""
    return Program(data, is_hlo=False)


def make_xla_compile_options(compile_options: _options.CompileOptions, host_callbacks: Sequence[Any]) -> CompileOptions:
    """Options for programs of make_hlo_program."""
    return CompileOptions(compile_options, host_callbacks)


def make_plugin_compile_options() -> CompileOptions:
    """Options for programs of make_plugin_program."""
    return CompileOptions()
