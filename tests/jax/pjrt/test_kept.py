"""Programs that an earlier process compiled are neither read nor lowered again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.jax.pjrt.harness import python

_CODE = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from hlokit import api

reads = []
parse = api.parse

def counted(code, *rest, **options):
    reads.append(len(code))
    return parse(code, *rest, **options)

api.parse = counted
if "handler" in sys.argv:
    import hlokit as hk
    hk.register_custom_call("lapack_spotrf_ffi", lambda x: (x * 0, np.int32(0)), replace=True)
if "plans" in sys.argv:  # the folder has lost what the records lead to
    from hlokit.runtime import plan
    from hlokit.cpu.jit.cache import Cache
    for entry in Cache().entries():
        if "(plan)" in entry.name:
            entry.path.unlink()

def seen(function, *arguments, **options):
    before = len(reads)
    compiled = jax.jit(function, **options).lower(*arguments).compile()
    read = len(reads) - before
    results = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(compiled(*arguments))]
    cost = compiled.cost_analysis()["flops"]
    return {"read": read, "results": results, "text": compiled.as_text(), "flops": cost,
            "memory": compiled.memory_analysis().argument_size_in_bytes}

table = np.arange(100_000, dtype=np.float32)
small = np.arange(8, dtype=np.float32)
square = np.eye(3, dtype=np.float32) * 4
print(json.dumps({
    "plain": seen(lambda x, y: {"a": jnp.sin(x) @ y, "b": x.sum()}, jnp.ones((4, 4)), jnp.ones((4, 2))),
    "constants": seen(lambda x: x + small, jnp.ones(8)),
    "large constants": seen(lambda x: (x + table)[:3], jnp.ones(100_000)),
    "donated": seen(lambda x: x + 1, jnp.ones(8), donate_argnums=0),
    "custom call": seen(jnp.linalg.cholesky, square),
    "loop": seen(lambda x: jax.lax.fori_loop(0, 5, lambda i, v: v * 2 + i, x), jnp.ones(3)),
    "callback": seen(lambda x: jax.pure_callback(lambda v: np.asarray(v) * 3, jax.ShapeDtypeStruct((3,), np.float32), x),
                     jnp.ones(3)),
}))
"""


def _run(folder: Path, *arguments: str, **environment: str) -> dict[str, dict[str, Any]]:
    done = python("-c", _CODE, *arguments, HLOKIT_CACHE_DIR=str(folder), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _reads(found: dict[str, dict[str, Any]]) -> dict[str, int]:
    return {name: facts.pop("read") for name, facts in found.items()}


def test_programs_are_found_by_their_bytes(tmp_path: Path) -> None:
    first, again = _run(tmp_path), _run(tmp_path)
    assert _reads(first) == dict.fromkeys(first, 1)
    assert _reads(again) == dict.fromkeys(first, 0) | {"large constants": 1}
    assert again == first
    lost = _run(tmp_path, "plans")
    assert _reads(lost) == dict.fromkeys(first, 1) and lost == first
    own = _run(tmp_path, "handler")
    assert _reads(own)["custom call"] == 1
    assert own["custom call"]["results"] != first["custom call"]["results"], "the user's function was not called"
    other = _run(tmp_path, XLA_FLAGS="--xla_disable_hlo_passes=simplify")
    assert set(_reads(other).values()) == {1}
    assert [facts["results"] for facts in other.values()] == [facts["results"] for facts in first.values()]
