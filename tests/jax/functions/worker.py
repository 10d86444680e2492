"""Runs cases in a process whose default platform is hlokit. Prints a line of JSON as each begins and as it ends.

python -m tests.jax.functions.worker ID...
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax.functions import table
from tests.jax.functions.table import TOLERANCE, Case, cases

PLATFORMS = ("hlokit", "cpu")


def main(*ids: str) -> None:
    assert jax.default_backend() == "hlokit"
    for id in ids:
        print(json.dumps({"begins": id}), flush=True)
        start = time.process_time()
        try:
            parts, error = check(cases()[id]), ""
        except Exception:
            parts, error = [], traceback.format_exc(limit=-6)
        print(json.dumps({"ends": id, "parts": parts, "error": error, "cpu": time.process_time() - start}), flush=True)


def check(case: Case) -> list[str]:
    """The parts that agreed: "value f32", "grad f32", "vmap f32", ... An error names the part that did not."""
    with _on("cpu"):
        parts = {} if case.host else _parts(case)
        wanted = _evaluated(case, parts)
    with _on("hlokit"):
        if case.unsupported:
            _refuses(case, parts)
            return []
        found = _one_by_one(case, parts)
    for part in wanted:
        _same(part, case, found[part], wanted[part])
    return list(wanted)


class _on:
    """Computes on the platform."""

    def __init__(self, platform: str) -> None:
        self.device = jax.devices(platform)[0]
        self.default = jax.default_device(self.device)

    def __enter__(self) -> None:
        table._device[:] = [self.device]
        self.default.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.default.__exit__(*error)


def _parts(case: Case) -> dict[str, tuple[Callable[..., Any], Any]]:
    """What is computed, by name: (function, arguments)."""
    parts: dict[str, tuple[Callable[..., Any], Any]] = {}
    f = case.call
    for type in case.types.split():
        args, batches = case.arguments(type), case.batches(type)
        parts[f"value {type}"] = f, args
        if _has_gradient(case, f, args):
            parts[f"grad {type}"] = _gradient(case, f), args
        if case.no_vmap:
            _has_no("vmap", case, jax.vmap(f), batches)
        elif args:
            parts[f"vmap {type}"] = jax.vmap(f), batches
    return parts


def _has_gradient(case: Case, f: Callable[..., Any], args: Any) -> bool:
    inexact = [any(map(_is_inexact, jax.tree.leaves(side))) for side in (args, jax.eval_shape(f, *args))]
    if case.no_grad and all(inexact):
        _has_no("gradient", case, _gradient(case, f), args)
    return all(inexact) and not case.no_grad


def _has_no(what: str, case: Case, f: Callable[..., Any], args: Any) -> None:
    try:
        jax.eval_shape(f, *args)
    except Exception:
        return
    raise AssertionError(f"{case.id}: JAX has a {what}, and the table says that it has none")


def _is_inexact(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _gradient(case: Case, f: Callable[..., Any]) -> Callable[..., Any]:
    """The derivatives of a weighted sum of every result by every argument."""

    def gradient(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        chosen = [jax.tree.map(lambda _, n=n: case.by is None or n in case.by, arg) for n, arg in enumerate(args)]
        places = [n for n, (x, by) in enumerate(zip(leaves, jax.tree.leaves(chosen))) if by and _is_inexact(x)]

        def results(values: Any) -> Any:
            filled = [values[places.index(n)] if n in places else x for n, x in enumerate(leaves)]
            return [y for y in jax.tree.leaves(f(*jax.tree.unflatten(tree, filled))) if _is_inexact(y)]

        values, transpose = jax.vjp(results, [leaves[n] for n in places])
        return transpose([_weights(y) for y in values])

    return gradient


def _weights(y: Any) -> Any:
    angles = jnp.arange(y.size, dtype=jnp.float32).reshape(y.shape)
    weights = jnp.cos(angles) + 1j * jnp.sin(angles) if jnp.iscomplexobj(y) else jnp.cos(angles)
    return weights.astype(y.dtype)


def _evaluated(case: Case, parts: dict[str, Any]) -> dict[str, Any]:
    """Every part, in one program; results are trees of NumPy arrays."""
    if case.host:
        return {"value": jax.device_get(case.call(*jax.tree.map(jnp.asarray, case.args)))}
    functions = {name: f for name, (f, _) in parts.items()}
    args = {name: args for name, (_, args) in parts.items()}
    results = jax.jit(lambda args: {name: f(*args[name]) for name, f in functions.items()})(args)
    wrong = {d.platform for x in jax.tree.leaves(results) for d in x.devices()} - {table._device[0].platform}
    assert not wrong, f"computed on {wrong}"
    return jax.device_get(results)


def _one_by_one(case: Case, parts: dict[str, Any]) -> dict[str, Any]:
    """Every part; where the program of all fails, each in its own program, so that the error names the part."""
    try:
        return _evaluated(case, parts)
    except Exception:
        for name in parts:
            try:
                _evaluated(case, {name: parts[name]})
            except Exception as error:
                error.add_note(f"in {name}")
                raise
        raise


def _refuses(case: Case, parts: dict[str, Any]) -> None:
    try:
        _evaluated(case, parts)
    except Exception as error:
        assert case.unsupported in str(error), f"{case.unsupported!r} is not in {error}"
        return
    raise AssertionError(f"it works: {case.id} is no longer unsupported")


def _same(part: str, case: Case, found: Any, wanted: Any) -> None:
    (got, tree), (expected, wanted_tree) = jax.tree.flatten(found), jax.tree.flatten(wanted)
    assert tree == wanted_tree, f"{part}: {tree}, not {wanted_tree}"
    for number, (x, y) in enumerate(zip(got, expected, strict=True)):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape) == (y.dtype, y.shape), f"{part}: {x.dtype}{x.shape}, not {y.dtype}{y.shape}"
        if y.dtype.kind in "OSU":
            assert x.tolist() == y.tolist(), f"{part}: {x}, not {y}"
            continue
        tolerance = TOLERANCE.get(str(y.dtype), 0.0) and (case.tolerance or TOLERANCE[str(y.dtype)])
        if y.dtype.name in ("bfloat16", "float16"):
            tolerance = max(tolerance, TOLERANCE[y.dtype.name])
        wide = np.result_type(y.dtype, np.float32) if tolerance else y.dtype
        x, y = x.astype(wide), y.astype(wide)
        finite = np.abs(y[np.isfinite(y)]) if tolerance else np.zeros(0)
        largest = float(finite.max()) if finite.size else 0.0
        np.testing.assert_allclose(x, y, tolerance, tolerance * largest, err_msg=f"{part}, result {number}")


if __name__ == "__main__":
    main(*sys.argv[1:])
