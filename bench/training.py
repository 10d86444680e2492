"""Training loops through JAX on hlokit and on JAX's own CPU client: `python bench/training.py [--repeat N]`.

Loops of a transformer, a residual network, an LSTM, a perceptron of three layers and a recommender; their jitted steps
donate the state. Each platform trains in a
process of its own, and they take turns, a loop at a time. The table has the medians of a step's time over all turns in
milliseconds, their ratio, the time to the first step's result (tracing, compiling, no cache of either), and how far
the losses of the two lie apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLATFORMS = ("cpu", "hlokit")
ROOT = Path(__file__).parents[1]
Tree = Any


def adam(loss_of: Callable[..., Any], rate: float = 1e-3) -> Callable[..., Any]:
    """A jitted step of Adam, whose state (parameters, their moments, the step's number) is donated."""
    import jax
    import jax.numpy as jnp

    def step(state: Tree, *batch: Any) -> tuple[Tree, Any]:
        parameters, first, second, number = state
        loss, gradients = jax.value_and_grad(loss_of)(parameters, *batch)
        number = number + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        scale = rate * jnp.sqrt(1 - 0.999**number) / (1 - 0.9**number)
        parameters = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), parameters, first, second)
        return (parameters, first, second, number), loss

    return jax.jit(step, donate_argnums=0)


def momentum(loss_of: Callable[..., Any], rate: float = 0.002) -> Callable[..., Any]:
    """A jitted step of gradient descent with momentum, whose state is donated."""
    import jax

    def step(state: Tree, *batch: Any) -> tuple[Tree, Any]:
        parameters, velocity = state
        loss, gradients = jax.value_and_grad(loss_of)(parameters, *batch)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradients)
        return (jax.tree.map(lambda p, v: p - rate * v, parameters, velocity), velocity), loss

    return jax.jit(step, donate_argnums=0)


def transformer() -> tuple[Callable[..., Any], Tree, list[tuple[Any, ...]]]:
    """A language model: 2 layers of width 128, 4 heads, 16 sequences of 64 of 1024 words."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    batch, length, width, heads, words, layers = 16, 64, 128, 4, 1024, 2
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(draw.standard_normal(shape) / math.sqrt(shape[0]), jnp.float32)

    blocks = [
        {
            "qkv": normal(width, 3 * width), "out": normal(width, width), "up": normal(width, 4 * width),
            "down": normal(4 * width, width), "scales": jnp.ones((2, width)),
        }
        for _ in range(layers)
    ]  # fmt: skip
    parameters = {"words": normal(words, width), "places": normal(length, width), "blocks": blocks}

    def normalized(x: Any, scale: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return scale * centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    def loss_of(parameters: Tree, tokens: Any) -> Any:
        x = parameters["words"][tokens[:, :-1]] + parameters["places"]
        mask = jnp.tril(jnp.ones((length, length), bool))
        for block in parameters["blocks"]:
            q, k, v = jnp.split(normalized(x, block["scales"][0]) @ block["qkv"], 3, axis=-1)
            q, k, v = (y.reshape(batch, length, heads, -1) for y in (q, k, v))
            scores = jnp.einsum("blhd,bmhd->bhlm", q, k) / math.sqrt(width // heads)
            weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
            x = x + jnp.einsum("bhlm,bmhd->blhd", weights, v).reshape(batch, length, width) @ block["out"]
            x = x + jax.nn.gelu(normalized(x, block["scales"][1]) @ block["up"]) @ block["down"]
        logits = x @ parameters["words"].T
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
        return -chosen.mean()

    starts, strides = draw.integers(words, size=(8, batch, 1)), draw.integers(1, 5, size=(8, batch, 1))
    tokens = ((starts + strides * np.arange(length + 1)) % words).astype(np.int32)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state = (parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.float32(0))
    return adam(loss_of), state, [(jnp.asarray(t),) for t in tokens]


def resnet() -> tuple[Callable[..., Any], Tree, list[tuple[Any, ...]]]:
    """A residual network: 16 images of 32 x 32, three stages of two blocks with batch normalisation."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    batch, stages = 16, (16, 32, 64)
    draw = np.random.default_rng(1)

    def kernel(*shape: int) -> Any:
        return jnp.asarray(draw.standard_normal(shape) * math.sqrt(2 / math.prod(shape[:-1])), jnp.float32)

    def norm(features: int) -> Tree:
        return {"scale": jnp.ones(features), "shift": jnp.zeros(features)}

    blocks: list[Tree] = []
    inputs = stages[0]
    for features in stages:
        for _ in range(2):
            block = {
                "first": kernel(3, 3, inputs, features), "second": kernel(3, 3, features, features),
                "norms": [norm(features), norm(features)],
            }  # fmt: skip
            if inputs != features:
                block["shortcut"] = kernel(1, 1, inputs, features)
            blocks.append(block)
            inputs = features
    parameters = {"stem": kernel(3, 3, 3, stages[0]), "norm": norm(stages[0]), "blocks": blocks, "head": kernel(64, 10)}

    def convolved(x: Any, w: Any, stride: int = 1) -> Any:
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def normalized(x: Any, norm: Tree) -> Any:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * norm["scale"] + norm["shift"]

    def loss_of(parameters: Tree, images: Any, labels: Any) -> Any:
        x = jax.nn.relu(normalized(convolved(images, parameters["stem"]), parameters["norm"]))
        for block in parameters["blocks"]:
            stride = 2 if "shortcut" in block else 1
            y = jax.nn.relu(normalized(convolved(x, block["first"], stride), block["norms"][0]))
            y = normalized(convolved(y, block["second"]), block["norms"][1])
            x = jax.nn.relu(y + (convolved(x, block["shortcut"], stride) if stride == 2 else x))
        logits = x.mean((1, 2)) @ parameters["head"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1).mean()

    state = (parameters, jax.tree.map(jnp.zeros_like, parameters))
    batches = []
    for _ in range(8):
        labels = draw.integers(10, size=batch).astype(np.int32)
        images = draw.standard_normal((batch, 32, 32, 3)).astype(np.float32) + 0.2 * labels[:, None, None, None]
        batches.append((jnp.asarray(images, jnp.float32), jnp.asarray(labels)))
    return momentum(loss_of), state, batches


def lstm() -> tuple[Callable[..., Any], Tree, list[tuple[Any, ...]]]:
    """An LSTM of width 256 over 32 sequences of 64 characters, by `lax.scan`."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    batch, length, width, characters = 32, 64, 256, 96
    draw = np.random.default_rng(2)

    def normal(*shape: int) -> Any:
        return jnp.asarray(draw.standard_normal(shape) / math.sqrt(shape[0]), jnp.float32)

    parameters = {
        "characters": normal(characters, width), "input": normal(width, 4 * width), "hidden": normal(width, 4 * width),
        "shift": jnp.zeros(4 * width), "head": normal(width, characters),
    }  # fmt: skip

    def loss_of(parameters: Tree, text: Any) -> Any:
        inputs = parameters["characters"][text[:, :-1]] @ parameters["input"] + parameters["shift"]

        def cell(carry: Any, x: Any) -> Any:
            hidden, memory = carry
            i, f, g, o = jnp.split(x + hidden @ parameters["hidden"], 4, axis=-1)
            memory = jax.nn.sigmoid(f + 1) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
            return (hidden, memory), hidden

        zeros = jnp.zeros((batch, width))
        _, hidden = jax.lax.scan(cell, (zeros, zeros), inputs.swapaxes(0, 1))
        logits = jax.nn.log_softmax(hidden @ parameters["head"])
        return -jnp.take_along_axis(logits, text[:, 1:].T[..., None], axis=-1).mean()

    starts, strides = draw.integers(characters, size=(8, batch, 1)), draw.integers(1, 5, size=(8, batch, 1))
    text = ((starts + strides * np.arange(length + 1)) % characters).astype(np.int32)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state = (parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.float32(0))
    return adam(loss_of), state, [(jnp.asarray(t),) for t in text]


def mlp() -> tuple[Callable[..., Any], Tree, list[tuple[Any, ...]]]:
    """A perceptron: 128 rows of 784, two hidden layers of 512, 10 classes."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    batch, sides = 128, (784, 512, 512, 10)
    draw = np.random.default_rng(3)

    def normal(*shape: int) -> Any:
        return jnp.asarray(draw.standard_normal(shape) * math.sqrt(2 / shape[0]), jnp.float32)

    parameters = [(normal(m, n), jnp.zeros(n)) for m, n in itertools.pairwise(sides)]

    def loss_of(parameters: Tree, rows: Any, labels: Any) -> Any:
        x = rows
        for weights, shift in parameters[:-1]:
            x = jax.nn.relu(x @ weights + shift)
        weights, shift = parameters[-1]
        logits = x @ weights + shift
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1).mean()

    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state = (parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.float32(0))
    batches = []
    for _ in range(8):
        labels = draw.integers(10, size=batch).astype(np.int32)
        rows = draw.standard_normal((batch, 784)) + 0.2 * labels[:, None]
        batches.append((jnp.asarray(rows, jnp.float32), jnp.asarray(labels)))
    return adam(loss_of), state, batches


def recommender() -> tuple[Callable[..., Any], Tree, list[tuple[Any, ...]]]:
    """Embeddings of width 32 of 20,000 users and 10,000 items, a perceptron of their pairs, 1024 pairs a step."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    batch, users, items, width = 1024, 20_000, 10_000, 32
    draw = np.random.default_rng(4)

    def normal(*shape: int) -> Any:
        return jnp.asarray(draw.standard_normal(shape) / math.sqrt(shape[-1]), jnp.float32)

    parameters = {
        "users": normal(users, width), "items": normal(items, width), "hidden": normal(2 * width, 256),
        "shift": jnp.zeros(256), "head": normal(256, 1),
    }  # fmt: skip

    def loss_of(parameters: Tree, user: Any, item: Any, liked: Any) -> Any:
        x = jnp.concatenate([parameters["users"][user], parameters["items"][item]], axis=-1)
        x = jax.nn.relu(x @ parameters["hidden"] + parameters["shift"])
        logits = (x @ parameters["head"])[:, 0]
        return (jax.nn.softplus(logits) - liked * logits).mean()

    state = (parameters, jax.tree.map(jnp.zeros_like, parameters))
    batches = []
    for _ in range(8):
        user, item = (draw.integers(count, size=batch).astype(np.int32) for count in (users, items))
        liked = ((user + item) % 3 == 0).astype(np.float32)
        batches.append((jnp.asarray(user), jnp.asarray(item), jnp.asarray(liked)))
    return momentum(loss_of), state, batches


LOOPS = {"transformer": transformer, "resnet": resnet, "lstm": lstm, "mlp": mlp, "recommender": recommender}


def measure(platform: str, loop: str, steps: int) -> dict[str, Any]:
    """A turn of the loop on this process's platform: seconds of the first step and of each other, and the losses."""
    import jax

    assert jax.default_backend() == platform, jax.default_backend()
    step, state, batches = LOOPS[loop]()
    times: list[float] = []
    losses: list[float] = []
    for number in range(steps + 1):
        start = time.perf_counter()
        state, loss = step(state, *batches[number % len(batches)])
        losses.append(float(loss))  # waits
        times.append(time.perf_counter() - start)
    return {"first": times[0], "steps": times[1:], "losses": losses}


def turn(platform: str, loop: str, steps: int) -> dict[str, Any]:
    """`measure` in a process of its own, without caches of programs."""
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    environment |= {"JAX_PLATFORMS": f"{platform},cpu" if platform != "cpu" else "cpu", "PYTHONPATH": path}
    environment |= {"HLOKIT_CACHE_DIR": ""}
    command = [sys.executable, __file__, "--platform", platform, "--only", loop, "--steps", str(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="turns of each")
    parser.add_argument("--steps", type=int, default=30, help="steps of a turn, besides the first")
    parser.add_argument("--only", choices=LOOPS, help="this loop alone")
    parser.add_argument("--platform", choices=PLATFORMS, help="measure this one here, as a line of JSON")
    given = parser.parse_args()
    loops = [given.only] if given.only else list(LOOPS)
    if given.platform:
        print(json.dumps(measure(given.platform, loops[0], given.steps)))
        return
    print(f"{'':14}{'ms a step':>17}{'':9}{'first step, s':>17}{'':9}")
    print(f"{'':14}{'JAX':>8}{'hlokit':>9}{'speedup':>9}{'JAX':>8}{'hlokit':>9}{'losses apart':>14}")
    speedups: list[float] = []
    for loop in loops:
        turns: dict[str, list[dict[str, Any]]] = {platform: [] for platform in PLATFORMS}
        for number in range(given.repeat):
            for platform in PLATFORMS[:: 1 if number % 2 == 0 else -1]:
                turns[platform].append(turn(platform, loop, given.steps))
        theirs, ours = (1e3 * statistics.median(s for t in turns[p] for s in t["steps"]) for p in PLATFORMS)
        first, our_first = (statistics.median(t["first"] for t in turns[p]) for p in PLATFORMS)
        pairs = zip(turns["cpu"][0]["losses"], turns["hlokit"][0]["losses"])
        apart = max(abs(a - b) / abs(a) for a, b in pairs)
        speedups.append(theirs / ours)
        row = f"{loop:14}{theirs:8.1f}{ours:9.1f}{speedups[-1]:9.2f}{first:8.2f}{our_first:9.2f}{apart:14.1e}"
        print(row, flush=True)
    print(f"{'geometric mean':14}{'':17}{statistics.geometric_mean(speedups):9.2f}")


if __name__ == "__main__":
    main()
