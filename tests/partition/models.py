"""Ten whole models of JAX on 8 devices, by hlokit's partitioner and by XLA's: python -m tests.partition.models [NAME...]

    --markdown FILE     the table
    --show NAME         the collectives of both, with the reasons of ours

For each: the bytes that a device sends in collectives (the mean; as rings send them, and as often as loops run),
the ops on whole values, and whether the results agree with those of JAX's CPU client. XLA's program is what
`compiled.as_text()` says in a process with 8 devices. Exit status 1 if results differ or more than 1.25 times XLA's bytes
are sent.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.analysis.loops import runs
from hlokit.analysis.simulation.program import device_groups, device_pairs
from hlokit.hlo.instruction import Instruction

ROOT = Path(__file__).parents[2]
DEVICES = 8
MOST = 1.25
"""Times XLA's bytes that no model may send."""
Model = tuple[Callable[..., Any], tuple[Any, ...], Any, Any]
"""A function, its arguments, the shardings of arguments and of results."""


# -- the models, made in a process with as many devices


def _mesh(**axes: int) -> Any:
    import jax

    explicit = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=explicit)


def _placed(mesh: Any, *axes: str | None) -> Any:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(mesh, PartitionSpec(*axes))


def _transformer(parameters: str, mesh: Any, batch: str | None, sequence: str | None = None) -> Model:
    """A training step of 2 blocks of width 64; `parameters`: replicated, fsdp, tp or both."""
    import jax
    import jax.numpy as jnp

    from bench.workloads.loop import Draw, cross_entropy, encoded, encoder_block

    draw, width, words, length = Draw(0), 64, 128, 32
    weights = {"words": draw.normal(words, width), "blocks": [encoder_block(draw, width) for _ in range(2)]}
    wide = "model" if "tp" in parameters else None
    data = "data" if "fsdp" in parameters else None
    by_column, by_row = _placed(mesh, data, wide), _placed(mesh, wide, data)
    vector = _placed(mesh)
    block = {
        "qkv": by_column, "up": by_column, "out": by_row, "down": by_row, "scales": vector, "shifts": vector,
        "up_shift": _placed(mesh, wide), "down_shift": vector,
    }  # fmt: skip
    placed = {"words": _placed(mesh, data, None), "blocks": [block] * 2}

    def loss_of(weights: Any, tokens: Any) -> Any:
        x = weights["words"][tokens[:, :-1]]
        for each in weights["blocks"]:
            if sequence is not None:
                x = jax.lax.with_sharding_constraint(x, _placed(mesh, batch, sequence, None))
            x = encoded(x, each, 8, causal=True)
        return cross_entropy(x @ weights["words"].T, tokens[:, 1:])

    def step(weights: Any, tokens: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, tokens)
        return jax.tree.map(lambda p, g: p - 0.1 * g, weights, slopes), loss

    tokens = jnp.asarray(draw.integers(words, 16, length + 1))
    return step, (weights, tokens), (placed, _placed(mesh, batch, None)), (placed, vector)


def transformer_dp(devices: int = DEVICES) -> Model:
    """Data parallel: examples divided, weights on every device."""
    return _transformer("replicated", _mesh(data=devices), "data")


def transformer_fsdp(devices: int = DEVICES) -> Model:
    """Fully sharded data parallel: examples and weights divided along the same axis."""
    return _transformer("fsdp", _mesh(data=devices), "data")


def transformer_tp(devices: int = DEVICES) -> Model:
    """Tensor parallel: heads and hidden features divided."""
    return _transformer("tp", _mesh(model=devices), None)


def transformer_sp(devices: int = DEVICES) -> Model:
    """Tensor parallel, with activations between blocks divided along the sequence."""
    return _transformer("tp", _mesh(model=devices), None, "model")


def transformer_tp_fsdp(devices: int = DEVICES) -> Model:
    """2 by 4 devices: examples and weights along one axis, features along the other (features first on fewer)."""
    return _transformer("tp fsdp", _mesh(data=-(-devices // 4), model=min(devices, 4)), "data")


def moe(devices: int = DEVICES) -> Model:
    """A mixture of 8 experts, divided over the devices as the tokens are."""
    import jax
    import jax.numpy as jnp

    from bench.workloads.loop import Draw

    mesh, draw, width, hidden = _mesh(expert=devices), Draw(1), 32, 64
    weights = {
        "gate": draw.normal(width, 8), "up": draw.normal(8, width, hidden), "down": draw.normal(8, hidden, width)
    }  # fmt: skip
    by_expert = _placed(mesh, "expert", None, None)
    placed = {"gate": _placed(mesh), "up": by_expert, "down": by_expert}

    def loss_of(weights: Any, x: Any) -> Any:
        count = x.shape[1]  # tokens of a group go to at most 2 places of each expert's
        scores = jax.nn.softmax(x @ weights["gate"])
        chosen = jax.nn.one_hot(jnp.argmax(scores, -1), 8)
        place = jnp.cumsum(chosen, axis=1) * chosen - 1
        room = 2 * count // 8
        sent = jax.nn.one_hot(place.astype(jnp.int32), room) * chosen[..., None]
        inputs = jnp.einsum("gsec,gsm->egcm", sent, x)
        inputs = jax.lax.with_sharding_constraint(inputs, _placed(mesh, "expert", None, None, None))
        h = jax.nn.relu(jnp.einsum("egcm,emh->egch", inputs, weights["up"]))
        outputs = jnp.einsum("egch,ehm->egcm", h, weights["down"])
        outputs = jax.lax.with_sharding_constraint(outputs, _placed(mesh, "expert", None, None, None))
        back = jnp.einsum("gsec,egcm->gsm", sent * scores[..., None], outputs)
        back = jax.lax.with_sharding_constraint(back, _placed(mesh, "expert", None, None))
        return ((back - x) ** 2).mean()

    def step(weights: Any, x: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, weights, slopes), loss

    x = draw.normal(8, 32, width, scale=1.0)
    return step, (weights, x), (placed, by_expert), (placed, _placed(mesh))


def resnet_dp(devices: int = DEVICES) -> Model:
    """A residual network's training step with batch normalisation over all examples, data parallel."""
    import jax

    from bench.workloads.loop import Draw, cross_entropy
    from bench.workloads.training import residual_logits, residual_network

    mesh, draw = _mesh(data=devices), Draw(2)
    weights = residual_network(draw, (1, 1), bottleneck=False, classes=10)
    whole, images = _placed(mesh), _placed(mesh, "data", None, None, None)

    def step(weights: Any, images: Any, labels: Any) -> Any:
        loss, slopes = jax.value_and_grad(lambda w: cross_entropy(residual_logits(w, images), labels))(weights)
        return jax.tree.map(lambda p, g: p - 0.1 * g, weights, slopes), loss

    arguments = (weights, draw.normal(16, 16, 16, 3, scale=1.0), draw.integers(10, 16))
    return step, arguments, (whole, images, _placed(mesh, "data")), whole


def spatial(devices: int = DEVICES) -> Model:
    """Convolutions of an image that is divided by rows, then 10 steps of a stencil."""
    import jax
    import jax.numpy as jnp

    from bench.workloads.loop import Draw, convolved

    mesh, draw = _mesh(rows=devices), Draw(3)
    kernels = [draw.normal(3, 3, 3, 8), draw.normal(5, 5, 8, 8), draw.normal(3, 3, 8, 1)]
    placed = _placed(mesh, None, "rows", None, None)

    def run(kernels: Any, images: Any) -> Any:
        x = images
        for w in kernels:
            x = jnp.tanh(convolved(x, w))

        def stencil(_: Any, x: Any) -> Any:
            y = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            around = y[:, 2:, 1:-1] + y[:, :-2, 1:-1] + y[:, 1:-1, 2:] + y[:, 1:-1, :-2]
            return x + 0.1 * (around - 4 * x)

        return jax.lax.fori_loop(0, 10, stencil, x)

    return run, (kernels, draw.normal(2, 64, 48, 3, scale=1.0)), (_placed(mesh), placed), placed


def fft(devices: int = DEVICES) -> Model:
    """A Fourier transform in two dimensions of rows that are divided, a filter, and the way back."""
    import jax
    import jax.numpy as jnp

    from bench.workloads.loop import Draw

    mesh, draw = _mesh(rows=devices), Draw(4)
    rows, columns = _placed(mesh, "rows", None), _placed(mesh, None, "rows")

    def run(x: Any, mask: Any) -> Any:
        y = jax.lax.with_sharding_constraint(jnp.fft.fft(x, axis=1), columns)
        y = jnp.fft.ifft(jnp.fft.fft(y, axis=0) * mask, axis=0)
        return jnp.fft.ifft(jax.lax.with_sharding_constraint(y, rows), axis=1).real

    x, mask = draw.normal(64, 64, scale=1.0), draw.normal(64, 64, scale=1.0)
    return run, (x, mask), (rows, columns), rows


def gnn(devices: int = DEVICES) -> Model:
    """A training step of message passing: edges divided, nodes on every device."""
    import jax
    import jax.numpy as jnp

    from bench.workloads.loop import Draw, cross_entropy

    mesh, draw, nodes, edges, width = _mesh(edges=devices), Draw(5), 100, 800, 16
    weights = {"in": draw.normal(8, width), "message": draw.normal(2 * width, width), "head": draw.normal(width, 4)}
    whole, divided = _placed(mesh), _placed(mesh, "edges")

    def loss_of(weights: Any, features: Any, senders: Any, receivers: Any, labels: Any) -> Any:
        x = jax.nn.relu(features @ weights["in"])
        for _ in range(2):
            messages = jax.nn.relu(jnp.concatenate([x[senders], x[receivers]], -1) @ weights["message"])
            x = jax.nn.relu(x + jax.ops.segment_sum(messages, receivers, nodes))
        return cross_entropy(x @ weights["head"], labels)

    def step(weights: Any, *batch: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, *batch)
        return jax.tree.map(lambda p, g: p - 0.01 * g, weights, slopes), loss

    batch = (draw.normal(nodes, 8, scale=1.0), draw.integers(nodes, edges), draw.integers(nodes, edges))
    return step, (weights, *batch, draw.integers(4, nodes)), (whole, whole, divided, divided, whole), whole


MODELS = (
    *(transformer_dp, transformer_fsdp, transformer_tp, transformer_sp, transformer_tp_fsdp),
    *(moe, resnet_dp, spatial, fft, gnn),
)
NAMES = tuple(model.__name__ for model in MODELS)


def record(name: str, folder: Path) -> None:
    """Writes the model's StableHLO, XLA's program for a device, arguments and results. JAX has 8 CPU devices here."""
    import jax

    function, arguments, taken, given = globals()[name]()
    lowered = jax.jit(function, in_shardings=taken, out_shardings=given).lower(*arguments)
    (folder / f"{name}.mlir").write_text(lowered.as_text(), encoding="utf-8")
    compiled = lowered.compile()
    (folder / f"{name}.hlo").write_text(compiled.as_text(), encoding="utf-8")
    placed = jax.device_put(arguments, taken)
    results = jax.tree.leaves(compiled(*placed))
    leaves = jax.tree.leaves(arguments)
    arrays = {f"in{k}": np.asarray(x) for k, x in enumerate(leaves)}
    np.savez(folder / f"{name}.npz", **arrays, **{f"out{k}": np.asarray(x) for k, x in enumerate(results)})


def recorded(names: list[str], folder: Path) -> None:
    """`record` in a process with 8 devices."""
    code = f"from tests.partition import models; from pathlib import Path; folder = Path({str(folder)!r})\n"
    code += f"for name in {names!r}: models.record(name, folder)"
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    variables = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=variables, cwd=ROOT, check=True)


# -- what is sent


def sent(module: hk.HloModule) -> Counter[str]:
    """Bytes that a device sends, by kind of collective: the mean of all devices."""
    found: Counter[str] = Counter()
    for computation, times in runs(module).items():
        for instruction in computation.instructions:
            kind = instruction.opcode.removesuffix("-start")
            if kind in _SENT:
                found[kind] += times * round(_SENT[kind](instruction, module))
    return found


def _group(instruction: Instruction, module: hk.HloModule) -> int:
    groups = device_groups(instruction.op, module.replica_count, module.num_partitions)
    return max((len(group) for group in groups), default=1)


def _bytes(instruction: Instruction) -> int:
    return sum(operand.shape.nbytes for operand in instruction.operands)


def _permuted(instruction: Instruction, module: hk.HloModule) -> float:
    op: Any = instruction.op
    pairs = device_pairs(
        op.source_target_pairs, module.replica_count, module.num_partitions, of_partitions=op.channel_id is not None
    )
    devices = module.replica_count * module.num_partitions
    return _bytes(instruction) * sum(source != target for source, target in pairs) / devices


def _around(times: float, grows: bool = False) -> Callable[[Instruction, hk.HloModule], float]:
    """The bytes of a ring, in times of the whole array that each device has at the end or at the start."""

    def nbytes(instruction: Instruction, module: hk.HloModule) -> float:
        count = _group(instruction, module)
        return times * _bytes(instruction) * (count if grows else 1) * (count - 1) / count

    return nbytes


_SENT: dict[str, Callable[[Instruction, hk.HloModule], float]] = {
    "all-reduce": _around(2),
    "all-gather": _around(1, grows=True),
    "reduce-scatter": _around(1),
    "all-to-all": _around(1),
    "collective-permute": _permuted,
}


@dataclass
class Result:
    """A model's figures: bytes by kind, ops on whole values, and what is wrong with the results, if anything."""

    name: str
    ours: Counter[str]
    xla: Counter[str]
    whole: list[str]
    problem: str | None

    @property
    def ratio(self) -> float:
        ours, theirs = self.ours.total(), self.xla.total()
        return ours / theirs if theirs else (math.inf if ours else 1.0)

    @property
    def is_good(self) -> bool:
        return self.problem is None and self.ratio <= MOST and not self.whole


def compared(name: str, folder: Path) -> Result:
    """The model in parts by hlokit, beside what was recorded in the folder."""
    module = hk.parse((folder / f"{name}.mlir").read_text(encoding="utf-8"))
    theirs = hk.parse((folder / f"{name}.hlo").read_text(encoding="utf-8"), verify=False)
    found = hk.partition(module)
    stored = np.load(folder / f"{name}.npz")
    arguments = [stored[f"in{k}"] for k in range(sum(file.startswith("in") for file in stored.files))]
    results = found.join(hk.compile(found.module)(*found.split(*arguments)))
    problem = _problem(results, [stored[f"out{k}"] for k in range(len(stored.files) - len(arguments))])
    whole = [str(reason) for reason in found.reasons if reason.kind == "whole"]
    return Result(name, sent(hk.optimize(found.module)), sent(theirs), whole, problem)


def _problem(results: Any, expected: list[Any]) -> str | None:
    given = list(results) if isinstance(results, tuple) else [results]
    if len(given) != len(expected):
        return f"{len(given)} results, {len(expected)} expected"
    for number, (x, y) in enumerate(zip(given, expected)):
        if x.shape != y.shape or not np.allclose(x, y, rtol=2e-3, atol=2e-4 * (np.abs(y).max(initial=0) or 1)):
            apart = np.abs(x - y).max() if x.shape == y.shape else f"{x.shape} for {y.shape}"
            return f"result {number} differs by {apart}"
    return None


def table(results: list[Result]) -> str:
    """Markdown, the model that sends the most beside XLA first."""

    def cell(counted: Counter[str]) -> str:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counted.items()) if count)
        return f"{counted.total():,} ({kinds})" if kinds else "0"

    lines = ["| model | bytes sent by a device | by XLA's partitioner | ratio | on whole values | results |"]
    lines.append("| --- | --- | --- | ---: | ---: | --- |")
    for result in sorted(results, key=lambda result: -result.ratio):
        figures = [result.name, cell(result.ours), cell(result.xla), f"{result.ratio:.2f}", str(len(result.whole))]
        lines.append("| " + " | ".join([*figures, result.problem or "equal"]) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--show", choices=NAMES, metavar="NAME")
    options = parser.parse_args()
    names = [options.show] if options.show else options.names or list(NAMES)
    if unknown := set(names) - set(NAMES):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        recorded(names, folder)
        results = [compared(name, folder) for name in names]
        if options.show:
            for line in (folder / f"{options.show}.hlo").read_text(encoding="utf-8").splitlines():
                if any(f" {kind}(" in line or f" {kind}-start(" in line for kind in _SENT):
                    print("XLA:", line.strip()[:200])
            for reason in hk.partition(hk.load(folder / f"{options.show}.mlir")).reasons:
                print(reason)
    print(table(results))
    if options.markdown:
        options.markdown.write_text(table(results), encoding="utf-8")
    return 0 if all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
