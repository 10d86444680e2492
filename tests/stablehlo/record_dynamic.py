"""Records functions that jax.export wrote for symbolic sizes, and what JAX gives for some sizes.

python -m tests.stablehlo.record_dynamic       # jax in the environment; writes tests/data/stablehlo_dynamic.jsonl.gz
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).parents[1] / "data" / "stablehlo_dynamic.jsonl.gz"
X = np.arange(24, dtype=np.float32).reshape(6, 4)
INDICES = np.array([2, 0, 5], np.int32)


def _programs() -> dict[str, tuple[Callable[..., Any], list[str], list[Any]]]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def scanned(a: Any) -> Any:
        ones = jnp.ones((a.shape[1],))
        return lax.scan(lambda c, x: (c + x * ones, c * a.shape[0]), jnp.zeros(a.shape[1]), a)

    def looped(a: Any) -> Any:
        return lax.fori_loop(0, a.shape[0], lambda i, c: c + a[i] * a.shape[1], jnp.zeros(a.shape[1]))

    return {
        "products": (lambda a: (a @ a.T).reshape(-1) * a.shape[0], ["b,4"], [X]),
        "two_sizes": (lambda a, b: jnp.concatenate([a, jnp.sin(b)], 0)[1:], ["b,4", "c,4"], [X, X[:2]]),
        "iota": (lambda a: jnp.arange(a.shape[0] * 2 + 1) + a.sum().astype(int), ["b,4"], [X]),
        "loop": (looped, ["b,c"], [X]),
        "scan": (scanned, ["b,c"], [X]),
        "cond": (lambda a: lax.cond(a[0, 1] > 1, lambda: a * a.shape[0], lambda: -a[::-1]), ["b,4"], [X]),
        "sort": (lambda a: (jnp.sort(a, 0)[::-1], jnp.argmax(a, 0), jnp.cumsum(a, 1)), ["b,c"], [X]),
        "top_k": (lambda a: lax.top_k(a, a.shape[1] // 2), ["b,c"], [X]),
        "random": (lambda a: jax.random.normal(jax.random.PRNGKey(0), a.shape) + a, ["b,c"], [X]),
        "window": (lambda a: lax.reduce_window(a, -np.inf, lax.max, (2, a.shape[1]), (1, 1), "VALID"), ["b,c"], [X]),
        "pad": (lambda a: jnp.pad(a, ((1, a.shape[0]), (0, 2))), ["b,c"], [X]),
        "gather": (lambda a, i: (a[i], a.at[i].add(1.0)), ["b,4", "k"], [X, INDICES]),
        "multiple": (lambda a: a.reshape(a.shape[0] // 2, 2, -1).sum(1), ["2*b,4"], [X]),
        "gradient": (jax.grad(lambda a: jnp.tanh(a @ jnp.ones((4, 3))).mean()), ["b,4"], [X]),
        "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(a.shape[0])), ["b,c"], [X]),
    }


def record() -> list[dict[str, Any]]:
    import jax
    from jax import export

    found: list[dict[str, Any]] = []
    for name, (function, shapes, arguments) in _programs().items():
        scope = export.SymbolicScope()
        types = [
            jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), a.dtype)
            for shape, a in zip(shapes, arguments, strict=True)
        ]
        made = export.export(jax.jit(function), platforms=("cpu",))(*types)
        results = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(made.call(*arguments))]
        text = re.sub(
            r" loc\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\)", "", re.sub(r"(?m)^#loc.*\n", "", made.mlir_module())
        )
        found.append({"name": name, "text": text, "arguments": [list(a.shape) for a in arguments], "results": results})
    return found


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    lines = "".join(json.dumps(entry) + "\n" for entry in record())
    PATH.write_bytes(gzip.compress(lines.encode(), mtime=0))
