"""Science: samplers, solvers, simulations, fits."""

from __future__ import annotations

import math
from typing import Any

from bench.workloads.loop import Draw, Loop, Tree, jitted, trained


def numpyro_nuts() -> Loop:
    """NUTS by numpyro: 20 transitions of a logistic regression of 500 rows, 10 columns."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions, infer

    draw = Draw(40)
    rows = draw.normal(500, 10, scale=1.0)
    labels = (rows @ draw.normal(10, scale=1.0) > 0).astype(jnp.float32)

    def model(rows: Any, labels: Any) -> None:
        weights = numpyro.sample("weights", distributions.Normal(jnp.zeros(10), 1.0))
        numpyro.sample("labels", distributions.Bernoulli(logits=rows @ weights), obs=labels)

    kernel = infer.NUTS(model, max_tree_depth=6, step_size=0.1, adapt_step_size=False, adapt_mass_matrix=False)
    state = kernel.init(jax.random.PRNGKey(0), 0, None, (rows, labels), {})

    def step(state: Tree, rows: Any, labels: Any) -> Any:
        state = jax.lax.fori_loop(0, 20, lambda _, s: kernel.sample(s, (rows, labels), {}), state)
        return state, state.potential_energy

    return jitted(step, state, [(rows, labels)])


def blackjax_nuts() -> Loop:
    """NUTS by blackjax: 20 transitions of a hierarchical model of 8 groups and 400 rows."""
    import blackjax
    import jax
    import jax.numpy as jnp

    draw = Draw(41)
    groups, values = draw.integers(8, 400), draw.normal(400, scale=1.0)

    def log_density(position: Tree) -> Any:
        spread = jnp.exp(position["spread"])
        prior = -0.5 * (position["mean"] ** 2 + position["spread"] ** 2 + (position["groups"] ** 2).sum())
        centres = position["mean"] + spread * position["groups"]
        return prior - 0.5 * ((values - centres[groups]) ** 2).sum()

    sampler = blackjax.nuts(log_density, step_size=0.05, inverse_mass_matrix=jnp.ones(10), max_num_doublings=6)
    state = sampler.init({"mean": jnp.float32(0), "spread": jnp.float32(0), "groups": jnp.zeros(8)})

    def step(carry: Tree, _: Any) -> Any:
        def one(carry: Tree, _: Any) -> Any:
            key, state = carry
            key, used = jax.random.split(key)
            return (key, sampler.step(used, state)[0]), None

        carry, _ = jax.lax.scan(one, carry, None, length=20)
        return carry, carry[1].logdensity

    return jitted(step, (jax.random.PRNGKey(0), state), [(jnp.float32(0),)])


def neural_ode() -> Loop:
    """Training a neural ODE by diffrax: Tsit5, 32 trajectories of 20 times, a perceptron of width 64."""
    import diffrax
    import jax
    import jax.numpy as jnp

    draw = Draw(42)
    sizes = [(2, 64), (64, 64), (64, 2)]
    parameters = [(draw.normal(m, n), jnp.zeros(n)) for m, n in sizes]
    times = jnp.linspace(0.0, 1.0, 20)

    def field(_: Any, y: Any, parameters: Tree) -> Any:
        for w, b in parameters[:-1]:
            y = jnp.tanh(y @ w + b)
        return y @ parameters[-1][0] + parameters[-1][1]

    def solved(parameters: Tree, start: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.05, start, parameters,
            saveat=diffrax.SaveAt(ts=times), stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
            max_steps=256,
        ).ys  # fmt: skip

    def loss_of(parameters: Tree, starts: Any, paths: Any) -> Any:
        return ((jax.vmap(lambda y: solved(parameters, y))(starts) - paths) ** 2).mean()

    batches = [(draw.normal(32, 2, scale=1.0), draw.normal(32, 20, 2, scale=0.5)) for _ in range(2)]
    return trained(loss_of, parameters, batches)


def stiff_ode() -> Loop:
    """Robertson's stiff reactions by diffrax's Kvaerno5, 16 rates at once."""
    import diffrax
    import jax
    import jax.numpy as jnp

    def field(_: Any, y: Any, rates: Any) -> Any:
        one, two, three = y
        k1, k2, k3 = rates
        first = -k1 * one + k3 * two * three
        third = k2 * two**2
        return jnp.stack([first, -first - third, third])

    def solved(rates: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Kvaerno5(), 0.0, 100.0, 1e-4, jnp.array([1.0, 0.0, 0.0]), rates,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6), max_steps=4096,
        ).ys  # fmt: skip

    scales = jnp.linspace(0.5, 2.0, 16)[:, None] * jnp.array([0.04, 3e5, 1e2])
    return jitted(lambda state, rates: (state, jax.vmap(solved)(rates)), (), [(scales,)])


def molecular_dynamics() -> Loop:
    """jax-md: 20 steps at constant energy of 500 particles that repel each other, all pairs."""
    import jax
    import jax.numpy as jnp
    from jax_md import energy, simulate, space

    box = 20.0
    displacement, shift = space.periodic(box)
    draw = Draw(43)
    positions = jnp.asarray(draw.numpy.random((500, 2), "float32") * box)
    energy_of = energy.soft_sphere_pair(displacement)
    start, apply = simulate.nve(energy_of, shift, 1e-3)
    state = start(jax.random.PRNGKey(0), positions, kT=0.1)

    def step(state: Tree) -> Any:
        state = jax.lax.fori_loop(0, 20, lambda _, s: apply(s), state)
        return state, energy_of(state.position)

    return jitted(step, state)


def navier_stokes() -> Loop:
    """Vorticity of a flow in two dimensions, 128 x 128, by Fourier transforms: 5 steps of Runge-Kutta of order 4."""
    import jax
    import jax.numpy as jnp

    size = 128
    k = jnp.fft.fftfreq(size, 1 / size)
    kx, ky = k[:, None], jnp.fft.rfftfreq(size, 1 / size)[None]
    squares = kx**2 + ky**2
    inverse = jnp.where(squares == 0, 0, 1 / jnp.where(squares == 0, 1, squares))
    kept = (jnp.abs(kx) < size / 3) & (jnp.abs(ky) < size / 3)

    def slope(vorticity: Any) -> Any:
        stream = vorticity * inverse
        u, v = jnp.fft.irfft2(1j * ky * stream), jnp.fft.irfft2(-1j * kx * stream)
        dx, dy = jnp.fft.irfft2(1j * kx * vorticity), jnp.fft.irfft2(1j * ky * vorticity)
        return jnp.where(kept, jnp.fft.rfft2(-(u * dx + v * dy)), 0) - 1e-3 * squares * vorticity

    def advance(_: Any, w: Any) -> Any:
        h = 1e-3
        a = slope(w)
        b = slope(w + h / 2 * a)
        c = slope(w + h / 2 * b)
        d = slope(w + h * c)
        return w + h / 6 * (a + 2 * b + 2 * c + d)

    def step(state: Any) -> Any:
        state = jax.lax.fori_loop(0, 5, advance, state)
        return state, jnp.fft.irfft2(state)

    return jitted(step, jnp.fft.rfft2(Draw(44).normal(size, size, scale=1.0)))


def lattice_boltzmann() -> Loop:
    """D2Q9 of 256 x 128 cells around a cylinder: 10 steps of collision, streaming and bounce."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    moves = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    opposite = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
    weights = jnp.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)[:, None, None]
    cx, cy = (jnp.array([m[axis] for m in moves], jnp.float32) for axis in (0, 1))
    x, y = jnp.meshgrid(jnp.arange(256), jnp.arange(128), indexing="ij")
    solid = (x - 64) ** 2 + (y - 64) ** 2 < 15**2

    def equilibrium(density: Any, u: Any, v: Any) -> Any:
        along = cx[:, None, None] * u + cy[:, None, None] * v
        return weights * density * (1 + 3 * along + 4.5 * along**2 - 1.5 * (u**2 + v**2))

    def advance(_: Any, f: Any) -> Any:
        density = f.sum(0)
        u, v = jnp.tensordot(cx, f, 1) / density, jnp.tensordot(cy, f, 1) / density
        after = f - (f - equilibrium(density, u, v)) / 0.6
        after = jnp.where(solid, f[opposite], after)
        return jnp.stack([jnp.roll(after[k], move, (0, 1)) for k, move in enumerate(moves)])

    def step(f: Any) -> Any:
        f = jax.lax.fori_loop(0, 10, advance, f)
        return f, f.sum(0)

    ones = jnp.ones((256, 128))
    return jitted(step, equilibrium(ones, 0.1 * ones + 0.01 * jnp.sin(y / 20), 0 * ones))


def mujoco() -> Loop:
    """mujoco-mjx: a step of 32 pendulums on carts, each of 3 links."""
    import jax
    import jax.numpy as jnp
    import mujoco
    from mujoco import mjx

    rod = "<geom type='capsule' size='0.04' fromto='0 0 0 0 0 -0.5'/>"
    links = f"<body pos='0 0 -0.5'><joint type='hinge' axis='0 1 0'/>{rod}"
    text = (
        "<mujoco><option timestep='0.005'/><worldbody><body pos='0 0 2'><joint type='slide' axis='1 0 0'/>"
        f"<geom type='box' size='0.1 0.1 0.05'/>{links * 3}{'</body>' * 4}</worldbody></mujoco>"
    )
    model = mujoco.MjModel.from_xml_string(text)
    device_model = mjx.put_model(model)
    one = mjx.make_data(model)
    angles = Draw(45).normal(32, model.nq, scale=0.3)
    state = jax.vmap(lambda q: one.replace(qpos=q))(angles)

    def step(state: Tree) -> Any:
        state = jax.vmap(lambda data: mjx.step(device_model, data))(state)
        return state, state.qpos

    return jitted(step, jax.tree.map(jnp.array, state))


def pinn() -> Loop:
    """A physics-informed network with Hessians: Poisson's equation at 512 points, a perceptron of width 64."""
    import jax
    import jax.numpy as jnp

    draw = Draw(46)
    parameters = [(draw.normal(m, n), jnp.zeros(n)) for m, n in [(2, 64), (64, 64), (64, 64), (64, 1)]]

    def value(parameters: Tree, point: Any) -> Any:
        y = point
        for w, b in parameters[:-1]:
            y = jnp.tanh(y @ w + b)
        return (y @ parameters[-1][0] + parameters[-1][1])[0]

    def loss_of(parameters: Tree, points: Any, edge: Any) -> Any:
        laplacian = jax.vmap(lambda p: jnp.trace(jax.hessian(value, argnums=1)(parameters, p)))(points)
        wanted = -2 * math.pi**2 * jnp.sin(math.pi * points[:, 0]) * jnp.sin(math.pi * points[:, 1])
        border = jax.vmap(lambda p: value(parameters, p))(edge)
        return ((laplacian - wanted) ** 2).mean() + (border**2).mean()

    def points(count: int) -> Any:
        return jnp.asarray(draw.numpy.random((count, 2), "float32"))

    return trained(loss_of, parameters, [(points(512), points(128)) for _ in range(4)])


def gaussian_process() -> Loop:
    """The marginal likelihood of a Gaussian process of 400 points and its gradient (Cholesky, triangular solves)."""
    import jax
    import jax.numpy as jnp

    draw = Draw(47)
    points, values = draw.normal(400, 3, scale=1.0), draw.normal(400, scale=1.0)
    parameters = {"length": jnp.zeros(3), "scale": jnp.float32(0), "noise": jnp.float32(-1)}

    def loss_of(parameters: Tree, points: Any, values: Any) -> Any:
        scaled = points / jnp.exp(parameters["length"])
        squares = ((scaled[:, None] - scaled[None]) ** 2).sum(-1)
        covariance = jnp.exp(parameters["scale"] - 0.5 * squares)
        factor = jnp.linalg.cholesky(covariance + jnp.exp(parameters["noise"]) * jnp.eye(len(points)))
        solved = jax.scipy.linalg.cho_solve((factor, True), values)
        return 0.5 * values @ solved + jnp.log(jnp.diagonal(factor)).sum()

    return trained(loss_of, parameters, [(points, values)], rate=1e-2)


def kalman() -> Loop:
    """A Kalman filter of 6 states and 3 measurements over 1,000 times, and the gradient of its likelihood."""
    import jax
    import jax.numpy as jnp

    draw = Draw(48)
    parameters = {"move": 0.9 * jnp.eye(6) + draw.normal(6, 6, scale=0.02), "see": draw.normal(3, 6, scale=0.5)}

    def loss_of(parameters: Tree, seen: Any) -> Any:
        move, see = parameters["move"], parameters["see"]

        def advance(carry: Any, y: Any) -> Any:
            mean, spread = carry
            mean, spread = move @ mean, move @ spread @ move.T + 0.1 * jnp.eye(6)
            residual, noise = y - see @ mean, see @ spread @ see.T + 0.5 * jnp.eye(3)
            gain = jnp.linalg.solve(noise, see @ spread).T
            mean, spread = mean + gain @ residual, (jnp.eye(6) - gain @ see) @ spread
            return (mean, spread), residual @ jnp.linalg.solve(noise, residual) + jnp.linalg.slogdet(noise)[1]

        return jax.lax.scan(advance, (jnp.zeros(6), jnp.eye(6)), seen)[1].mean()

    return trained(loss_of, parameters, [(draw.normal(1000, 3, scale=1.0),)])


def ppo() -> Loop:
    """Proximal policy optimisation with a jitted environment (a pole on a cart): 64 of them, 32 steps, 4 epochs."""
    import jax
    import jax.numpy as jnp

    draw = Draw(49)
    count, horizon = 64, 32
    networks = {
        name: [(draw.normal(m, n), jnp.zeros(n)) for m, n in [(4, 64), (64, 64), (64, outputs)]]
        for name, outputs in (("policy", 2), ("value", 1))
    }

    def network(layers: Tree, x: Any) -> Any:
        for w, b in layers[:-1]:
            x = jnp.tanh(x @ w + b)
        return x @ layers[-1][0] + layers[-1][1]

    def environment(poles: Any, action: Any) -> Any:
        x, dx, angle, turn = poles.T
        force = jnp.where(action == 1, 10.0, -10.0)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + 0.05 * turn**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        pull = push - 0.05 * bend * cosine / 1.1
        after = jnp.stack([x + 0.02 * dx, dx + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend], -1)
        fallen = (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 0.21)
        return jnp.where(fallen[:, None], 0.01 * jnp.ones(4), after), fallen

    def loss_of(networks: Tree, batch: Tree) -> Any:
        logs = jax.nn.log_softmax(network(networks["policy"], batch["poles"]))
        log = jnp.take_along_axis(logs, batch["actions"][:, None], -1)[:, 0]
        ratio = jnp.exp(log - batch["logs"])
        gain = jnp.minimum(ratio * batch["gains"], jnp.clip(ratio, 0.8, 1.2) * batch["gains"]).mean()
        value = network(networks["value"], batch["poles"])[:, 0]
        return ((value - batch["returns"]) ** 2).mean() - gain + 0.01 * (jnp.exp(logs) * logs).sum(-1).mean()

    def step(state: Tree) -> Any:
        networks, poles, key = state

        def act(carry: Any, _: Any) -> Any:
            poles, key = carry
            key, used = jax.random.split(key)
            logits = network(networks["policy"], poles)
            action = jax.random.categorical(used, logits)
            log = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], -1)[:, 0]
            after, fallen = environment(poles, action)
            return (after, key), (poles, action, log, fallen, network(networks["value"], poles)[:, 0])

        (poles, key), (seen, actions, logs, fallen, values) = jax.lax.scan(act, (poles, key), None, length=horizon)
        last = network(networks["value"], poles)[:, 0]

        def back(carry: Any, row: Any) -> Any:
            following, gain = carry
            fell, value = row
            alive = 1.0 - fell
            gain = 1.0 + 0.99 * following * alive - value + 0.94 * alive * gain
            return (value, gain), gain

        _, gains = jax.lax.scan(back, (last, jnp.zeros(count)), (fallen.astype(jnp.float32), values), reverse=True)
        rows = {"poles": seen, "actions": actions, "logs": logs, "gains": gains, "returns": gains + values}
        rows = {name: row.reshape(count * horizon, *row.shape[2:]) for name, row in rows.items()}

        def epoch(carry: Any, _: Any) -> Any:
            networks, key = carry
            key, used = jax.random.split(key)
            order = jax.random.permutation(used, count * horizon)
            parts = jax.tree.map(lambda row: row[order].reshape(4, -1, *row.shape[1:]), rows)

            def update(networks: Tree, batch: Tree) -> Any:
                loss, slopes = jax.value_and_grad(loss_of)(networks, batch)
                return jax.tree.map(lambda p, g: p - 0.01 * g, networks, slopes), loss

            networks, losses = jax.lax.scan(update, networks, parts)
            return (networks, key), losses.mean()

        (networks, key), losses = jax.lax.scan(epoch, (networks, key), None, length=4)
        return (networks, poles, key), losses

    return jitted(step, (networks, draw.normal(count, 4, scale=0.05), jax.random.PRNGKey(0)))


def option_pricing() -> Loop:
    """Monte Carlo prices of an Asian option and their gradient: 16,384 paths of 64 times."""
    import jax
    import jax.numpy as jnp

    def price(parameters: Any, key: Any) -> Any:
        spot, rate, volatility = parameters

        def advance(carry: Any, key: Any) -> Any:
            value, total = carry
            noise = jax.random.normal(key, (16_384,))
            value = value * jnp.exp((rate - volatility**2 / 2) / 64 + volatility * noise / 8)
            return (value, total + value), None

        keys = jax.random.split(key, 64)
        (_, total), _ = jax.lax.scan(advance, (spot * jnp.ones(16_384), jnp.zeros(16_384)), keys)
        return jnp.exp(-rate) * jnp.maximum(total / 64 - 100.0, 0).mean()

    def step(key: Any) -> Any:
        key, used = jax.random.split(key)
        return key, jnp.stack(
            [jnp.float32(x) for x in jax.value_and_grad(price)(jnp.array([100.0, 0.03, 0.2]), used)[1]]
        )

    return jitted(step, jax.random.PRNGKey(0))
