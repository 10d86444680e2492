"""diffrax: a neural ODE that is trained, a stiff system, a stochastic one, events and dense results."""

from __future__ import annotations

from typing import Any

import diffrax as dx
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import optimistix as optx

STEPS, BATCH = 12, 16


class Field(eqx.Module):
    """dy/dt of y [2]."""

    mlp: eqx.nn.MLP

    def __call__(self, t: jax.Array, y: jax.Array, args: Any) -> jax.Array:
        return self.mlp(y)


def path(field: Field, start: jax.Array, times: jax.Array) -> jax.Array:
    """Positions [times, 2], by steps as long as the error allows."""
    return dx.diffeqsolve(
        dx.ODETerm(field), dx.Tsit5(), times[0], times[-1], 0.1, start,
        saveat=dx.SaveAt(ts=times), stepsize_controller=dx.PIDController(rtol=1e-3, atol=1e-5), max_steps=64,
    ).ys  # fmt: skip


@eqx.filter_jit
def step(field: Field, state: Any, starts: jax.Array, times: jax.Array, goal: jax.Array) -> Any:
    @eqx.filter_value_and_grad
    def loss_of(field: Field) -> jax.Array:
        return jnp.mean((jax.vmap(path, in_axes=(None, 0, None))(field, starts, times) - goal) ** 2)

    loss, gradients = loss_of(field)
    updates, state = optax.adabelief(1e-2).update(gradients, state)
    return eqx.apply_updates(field, updates), state, loss


def neural() -> dict[str, Any]:
    times = jnp.linspace(0, 2, 9)
    starts = jax.random.uniform(jax.random.key(0), (BATCH, 2), minval=-0.6, maxval=1)
    turn = jnp.array([[-0.1, 2.0], [-2.0, -0.1]])
    goal = jax.vmap(lambda y: jax.vmap(lambda t: jax.scipy.linalg.expm(t * turn) @ y)(times))(starts)
    field = Field(eqx.nn.MLP(2, 2, 16, 2, jax.nn.softplus, key=jax.random.key(1)))
    state = optax.adabelief(1e-2).init(eqx.filter(field, eqx.is_inexact_array))
    losses = []
    for _ in range(STEPS):
        field, state, loss = step(field, state, starts, times, goal)
        losses.append(loss)
    return {"losses": losses, "end": eqx.filter(field, eqx.is_array)}


def stiff() -> dict[str, Any]:
    """The oscillator of van der Pol by an implicit method, and how many steps it took."""

    def field(t: jax.Array, y: jax.Array, mu: float) -> jax.Array:
        return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    done = dx.diffeqsolve(
        dx.ODETerm(field), dx.Kvaerno5(), 0.0, 20.0, 0.01, jnp.array([2.0, 0.0]), args=20.0,
        saveat=dx.SaveAt(ts=jnp.linspace(0, 20, 11)), stepsize_controller=dx.PIDController(rtol=1e-3, atol=1e-5),
    )  # fmt: skip
    return {"path": done.ys, "steps": done.stats["num_accepted_steps"] * 1.0}


def adjoint() -> jax.Array:
    """The gradient of an end by the backward equation."""

    def end(start: jax.Array, rate: jax.Array) -> jax.Array:
        term = dx.ODETerm(lambda t, y, rate: -rate * y + jnp.sin(t))
        controller = dx.PIDController(rtol=1e-5, atol=1e-7)
        done = dx.diffeqsolve(
            term, dx.Dopri5(), 0.0, 3.0, 0.1, start, args=rate,
            stepsize_controller=controller, adjoint=dx.BacksolveAdjoint(),
        )  # fmt: skip
        return done.ys[-1].sum()

    return jax.jit(jax.grad(end, (0, 1)))(jnp.arange(3.0), jnp.array([0.5, 1.0, 2.0]))


def stochastic() -> jax.Array:
    """Ends of a geometric Brownian motion, several at once."""

    def end(key: jax.Array) -> jax.Array:
        noise = dx.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(), key=key)
        terms = dx.MultiTerm(dx.ODETerm(lambda t, y, a: 0.1 * y), dx.ControlTerm(lambda t, y, a: 0.3 * y, noise))
        return dx.diffeqsolve(terms, dx.Heun(), 0.0, 1.0, 0.05, 1.0).ys

    return jax.jit(jax.vmap(end))(jax.random.split(jax.random.key(4), 32))


def bounce() -> dict[str, Any]:
    """When a ball that falls meets the ground, and where it was in between."""
    event = dx.Event(lambda t, y, args, **_: y[0], optx.Newton(1e-5, 1e-5, optx.rms_norm))
    done = dx.diffeqsolve(
        dx.ODETerm(lambda t, y, args: jnp.stack([y[1], jnp.array(-9.8)])), dx.Tsit5(), 0.0, jnp.inf, 0.05,
        jnp.array([10.0, 0.0]), saveat=dx.SaveAt(t1=True, dense=True), event=event,
    )  # fmt: skip
    return {"time": done.ts, "middle": jax.vmap(done.evaluate)(jnp.linspace(0, 1.4, 5))}


def run() -> dict[str, Any]:
    return {
        "neural": neural(), "stiff": stiff(), "adjoint": adjoint(), "stochastic": stochastic(), "bounce": bounce(),
    }  # fmt: skip
