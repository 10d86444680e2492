"""Records jax.shard_map and jax.pmap programs: what JAX writes, and what XLA's devices give.

python -m tests.stablehlo.record_manual        # jax in the environment; writes tests/data/stablehlo_manual.jsonl.gz
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).parents[1] / "data" / "stablehlo_manual.jsonl.gz"
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def _programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    devices = np.array(jax.devices())
    line, grid, back = (
        Mesh(devices[:4], ("x",)),
        Mesh(devices.reshape(4, 2), ("x", "y")),
        Mesh(devices[:4][::-1], ("x",)),
    )

    def manual(f: Any, mesh: Any, given: Any, made: Any, **options: Any) -> Any:
        return jax.shard_map(f, mesh=mesh, in_specs=given, out_specs=made, **options)

    def places(a: Any) -> Any:
        return a * 2 + lax.axis_index("y") + 10 * lax.axis_index("x")

    def mixed(a: Any) -> Any:
        a = lax.with_sharding_constraint(a, NamedSharding(grid, P("x", "y")))
        return manual(places, grid, P("x", "y"), P("x", "y"))(a) @ jnp.ones((4, 3))

    def nested(a: Any) -> Any:
        def inner(b: Any) -> Any:
            rows = jax.shard_map(lambda c: lax.psum(c, "y"), in_specs=P(None, "y"), out_specs=P(), axis_names={"y"})(b)
            return rows + lax.psum(b.sum(), "x")

        return manual(inner, grid, P("x"), P("x"), axis_names={"x"})(a)

    def ring(a: Any) -> Any:
        pairs = [(i, (i + 1) % 4) for i in range(4)]
        return lax.scan(lambda c, _: (lax.ppermute(c, "x", pairs) + 1, None), a, None, length=3)[0]

    def around(a: Any) -> Any:
        share = manual(lambda b: b + lax.psum(b, "x") / 4, line, P("x"), P("x"))
        return lax.scan(lambda c, _: (share(c), None), a, None, length=3)[0]

    def loss(a: Any) -> Any:
        return (manual(lambda b: lax.psum(jnp.sin(b), "x"), line, P("x"), P())(a) ** 2).sum()

    tiled = {"tiled": True}
    return {
        "psum": (manual(lambda a: lax.psum(a, "x"), line, P("x"), P()), (X,)),
        "psums": (manual(lambda a: lax.psum(a, "x") + lax.psum(a, "y"), grid, P("x", "y"), P("x", "y")), (X,)),
        "all_gather": (
            manual(lambda a: lax.all_gather(a, "y", axis=0, **tiled), grid, P("x", "y"), P(("x", "y"))),
            (X,),
        ),
        "ppermute": (manual(lambda a: ring(a) + lax.axis_index("x"), back, P("x"), P("x")), (X,)),
        "all_to_all": (manual(lambda a: lax.all_to_all(a, "y", 1, 0, **tiled), grid, P("x"), P(("x", "y"))), (X,)),
        "psum_scatter": (manual(lambda a: lax.psum_scatter(a, "x", **tiled), grid, P("y"), P(("y", "x"))), (X,)),
        "free_axes": (manual(lambda a: lax.psum(a, "x"), grid, P("x"), P(), axis_names={"x"}), (X,)),
        "axis_index": (manual(places, grid, P(("y", "x")), P(None, ("y", "x"))), (X,)),
        "two_values": (
            manual(lambda a, b: (a + b, lax.pmax(a, "x")), line, (P("x"), P()), (P("x"), P())),
            (X, X[:2]),
        ),
        "mixed": (mixed, (X,)),
        "nested": (nested, (X,)),
        "loop_outside": (around, (X,)),
        "gradient": (jax.grad(loss), (X,)),
        "pmap": (
            jax.pmap(lambda a: (lax.psum(a, "i"), a * lax.axis_index("i")), "i", devices=list(devices[:4])),
            (X[:4],),
        ),
    }


def record() -> list[dict[str, Any]]:
    import jax

    found: list[dict[str, Any]] = []
    for shardy in (True, False):
        jax.config.update("jax_use_shardy_partitioner", shardy)
        jax.clear_caches()
        for name, (function, arguments) in _programs().items():
            jitted = function if name == "pmap" else jax.jit(function)
            if name == "pmap" and not shardy:
                continue
            lowered = jitted.lower(*arguments)
            entry = {"name": name if shardy else f"{name}_gspmd", "text": lowered.as_text()}
            if shardy:
                module: Any = lowered.compiler_ir("stablehlo")
                entry["generic"] = module.operation.get_asm(print_generic_op_form=True)
            results = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(jitted(*arguments))]
            found.append({**entry, "arguments": [a.shape[0] for a in arguments], "results": results})
    return found


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    text = "".join(json.dumps(entry) + "\n" for entry in record())
    PATH.write_bytes(gzip.compress(text.encode(), mtime=0))
