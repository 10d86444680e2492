"""optax: its optimisers on one regression, L-BFGS with its line search, accumulated gradients, losses, projections."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

STEPS = 15
SOLVERS = {
    "sgd": lambda: optax.sgd(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(optax.exponential_decay(0.03, 5, 0.9)),
    "adamw": lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.03)),
    "adafactor": lambda: optax.adafactor(0.05, min_dim_size_to_factor=4),
    "amsgrad": lambda: optax.amsgrad(0.03),
    "lamb": lambda: optax.lamb(0.03),
    "novograd": lambda: optax.novograd(0.03),
    "rmsprop": lambda: optax.rmsprop(0.01, centered=True),
    "yogi": lambda: optax.yogi(0.03),
    "radam": lambda: optax.radam(0.03),
    "sm3": lambda: optax.sm3(0.1),
    "muon": lambda: optax.contrib.muon(0.03),
    "multi_steps": lambda: optax.MultiSteps(optax.adam(0.05), every_k_schedule=3),
    "masked": lambda: optax.partition(
        {"w": optax.adagrad(0.1), "b": optax.set_to_zero()},
        {"first": {"w": "w", "b": "b"}, "second": {"w": "w", "b": "w"}},
    ),
    "lookahead": lambda: optax.apply_if_finite(optax.adabelief(0.03), max_consecutive_errors=2),
}


def predict(params: Any, x: jax.Array) -> jax.Array:
    hidden = jnp.tanh(x @ params["first"]["w"] + params["first"]["b"])
    return hidden @ params["second"]["w"] + params["second"]["b"]


def train(solver: Any, params: Any, x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """Losses [STEPS] of the solver, and where it ends; the loop is the program's."""

    def loss_of(params: Any) -> jax.Array:
        return optax.huber_loss(predict(params, x), y).mean()

    def step(carry: Any, _: None) -> Any:
        params, state = carry
        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, state = solver.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), loss

    (params, _), losses = jax.jit(lambda p: jax.lax.scan(step, (p, solver.init(p)), length=STEPS))(params)
    return {"losses": losses, "end": params}


def rosenbrock() -> dict[str, Any]:
    """L-BFGS with a zoom line search from (-1, ...): values and where it ends."""

    def value_of(x: jax.Array) -> jax.Array:
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    solver = optax.lbfgs()
    value_and_gradient = optax.value_and_grad_from_state(value_of)

    @jax.jit
    def step(x: jax.Array, state: Any) -> Any:
        value, gradient = value_and_gradient(x, state=state)
        updates, state = solver.update(gradient, state, x, value=value, grad=gradient, value_fn=value_of)
        return optax.apply_updates(x, updates), state, value

    x = jnp.zeros(4)
    state, values = solver.init(x), []
    for _ in range(8):
        x, state, value = step(x, state)
        values.append(value)
    return {"values": values, "end": x}


def run() -> dict[str, Any]:
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], (64, 8))
    y = jnp.sin(x @ jax.random.normal(keys[1], (8, 2)))
    params = {
        "first": {"w": jax.random.normal(keys[2], (8, 16)) / 3, "b": jnp.zeros(16)},
        "second": {"w": jax.random.normal(keys[3], (16, 2)) / 4, "b": jnp.zeros(2)},
    }
    results: dict[str, Any] = {name: train(solver(), params, x, y) for name, solver in SOLVERS.items()}
    results["lbfgs"] = rosenbrock()
    labels = jnp.array([[1, 4, 2, 0], [3, 3, 0, 0]])
    results["ctc"] = jax.grad(lambda z: optax.ctc_loss(z, jnp.zeros(z.shape[:2]), labels, (labels == 0) * 1.0).sum())(
        jax.random.normal(keys[0], (2, 9, 5))
    )
    results["simplex"] = jax.jit(optax.projections.projection_simplex)(x[0])
    return results
