"""Cases: public functions of JAX, what they are called with, and how closely both sides must agree."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import CodeType
from typing import Any

import jax
import ml_dtypes
import numpy as np

TYPES: dict[str, Any] = {
    "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "c64": np.complex64,
    "i32": np.int32, "u8": np.uint8, "bool": np.bool_,
}  # fmt: skip
TOLERANCE = {
    "float32": 1e-5,
    "complex64": 1e-5,
    "bfloat16": 2.0**-6,
    "float16": 2.0**-9,
    "float64": 1e-13,
    "complex128": 1e-13,
}
"""By element type, relative to the element and to the array's largest; other types must be equal."""


@dataclass(frozen=True)
class Case:
    """One function with one set of arguments, jitted as one program with its gradient and vmap.

    `f` takes the arguments; without it the function `name` does. Arguments are trees of NumPy arrays. `types`: those of
    float32 are cast to each. `host`: called as it is, not in jit (no gradient, no vmap). `no_grad`, `no_vmap`: JAX has
    none, which is checked. `by`: the only arguments that JAX can differentiate by. `batch`: arguments to be stacked with the first, in place of their mirror images.
    `tolerance`: in place of TOLERANCE, for `reason`. `unsupported`: the text of the error in which it ends on hlokit,
    which docs/jax.md lists with the `reason`.
    """

    name: str
    f: Callable[..., Any] | None
    args: tuple[Any, ...]
    label: str = ""
    types: str = "f32"
    host: bool = False
    no_grad: bool = False
    no_vmap: bool = False
    by: tuple[int, ...] | None = None
    batch: tuple[Any, ...] | None = None
    tolerance: float = 0.0
    reason: str = ""
    unsupported: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    area: str = ""

    def __post_init__(self) -> None:
        special = self.tolerance or self.unsupported
        assert bool(special) == bool(self.reason), f"{self.id}: a tolerance of its own and a refusal have a reason"

    @property
    def id(self) -> str:
        return f"{self.name}[{self.label}]" if self.label else self.name

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def call(self) -> Callable[..., Any]:
        return self.f or resolved(self.name)

    def arguments(self, type: str) -> tuple[Any, ...]:
        return jax.tree.map(lambda x: _cast(x, type), self.args)

    def batches(self, type: str) -> tuple[Any, ...]:
        """Two sets of arguments, stacked."""
        first = self.arguments(type)
        if self.batch is not None:
            return jax.tree.map(lambda x, y: np.stack([x, _cast(y, type)]), first, self.batch)
        return jax.tree.map(lambda x: np.stack([x, np.flip(x)]), first)


def case(name: str, f: Callable[..., Any] | None, *args: Any, **flags: Any) -> Case:
    return Case(name, f, args, **flags)


def each(module: str, names: str, *args: Any, **flags: Any) -> Iterator[Case]:
    """Functions that are called with the same arguments."""
    for name in names.split():
        yield Case(f"{module}.{name}", None, args, **flags)


def _cast(x: Any, type: str) -> Any:
    """The array, where it is of float32, as another type: small integers, signs as truth values, some imaginary part."""
    if np.asarray(x).dtype != np.float32 or type == "f32":
        return np.asarray(x)
    if type == "c64":
        return (x + 0.5j * np.flip(x)).astype(np.complex64)
    if type == "bool":
        return np.asarray(x) > 0
    if type in ("i32", "u8"):
        return (np.abs(x) if type == "u8" else x).__mul__(4).astype(TYPES[type])
    return np.asarray(x).astype(TYPES[type])


def resolved(name: str) -> Any:
    """The public object of this name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def names_used(f: Callable[..., Any]) -> set[str]:
    """Every name, attribute and text in the function, its defaults, and the functions of its module that it calls."""
    found, pending, seen = set[str](), [f], set[int]()
    while pending:
        function = pending.pop()
        if id(function) in seen or not hasattr(function, "__code__"):
            continue
        seen.add(id(function))
        names = _names(function.__code__)
        found |= names
        values = [*(function.__defaults__ or ()), *(cell.cell_contents for cell in function.__closure__ or ())]
        found |= {value for value in values if isinstance(value, str)}
        found |= {value.__name__ for value in values if hasattr(value, "__name__")}
        pending += [value for value in values if callable(value)]
        pending += [function.__globals__[name] for name in names if name in function.__globals__]
    return found


def _names(code: CodeType) -> set[str]:
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return {*code.co_names, *code.co_freevars, *(c for c in code.co_consts if isinstance(c, str))}.union(*inner)


def areas() -> list[str]:
    """The names of the tables."""
    package = importlib.import_module("tests.jax.functions.areas")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__))


@cache
def cases() -> dict[str, Case]:
    """All tables, by id."""
    found: dict[str, Case] = {}
    for area in areas():
        for one in importlib.import_module(f"tests.jax.functions.areas.{area}").CASES:
            assert one.id not in found, one.id
            found[one.id] = replace(one, area=area)
    return found


_device: list[Any] = []


def devices() -> list[Any]:
    """The devices of the side that runs now."""
    return jax.devices(_device[0].platform)


# -- arguments


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).uniform(low, high, size=shape).astype(np.float32)


def integers(*shape: int, low: int = 0, high: int = 10, seed: int = 0, dtype: Any = np.int32) -> Any:
    return np.random.default_rng([seed, *shape]).integers(low, high, size=shape).astype(dtype)


def symmetric(n: int, seed: int = 0) -> Any:
    a = normal(n, n, seed=seed)
    return a + a.T


def positive(n: int, seed: int = 0) -> Any:
    a = normal(n, n, seed=seed)
    return a @ a.T + n * np.eye(n, dtype=np.float32)


KEY = np.uint32([0, 42])
"""A key of jax.random as its words."""
