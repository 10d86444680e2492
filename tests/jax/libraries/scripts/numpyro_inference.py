"""numpyro: NUTS and HMC chains, variational inference, a mixture, predictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools() -> None:
    """The eight schools, not centred."""
    mean, scale = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("scale", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        offset = numpyro.sample("offset", dist.Normal(0, 1))
        numpyro.sample("effect", dist.Normal(mean + scale * offset, ERRORS), obs=EFFECTS)


def logistic(x: jax.Array, y: jax.Array | None = None) -> None:
    """Logistic regression."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(x.shape[1]), 2).to_event(1))
    numpyro.sample("label", dist.Bernoulli(logits=x @ weights), obs=y)


def mixture(values: jax.Array) -> None:
    """Two normal distributions; which of them is summed out."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    means = numpyro.sample("means", dist.Normal(jnp.array([-1.0, 1.0]), 1).to_event(1))
    with numpyro.plate("values", values.shape[0]):
        parts = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, 0.5))
        numpyro.sample("value", parts, obs=values)


def chain(kernel: Any, warmup: int, samples: int, *args: Any) -> MCMC:
    sampler = MCMC(kernel, num_warmup=warmup, num_samples=samples, progress_bar=False)
    sampler.run(jax.random.key(0), *args)
    return sampler


def variational(x: jax.Array, y: jax.Array) -> dict[str, Any]:
    guide = AutoMultivariateNormal(logistic)
    svi = SVI(logistic, guide, numpyro.optim.ClippedAdam(0.02), Trace_ELBO(num_particles=4))
    done = svi.run(jax.random.key(3), 40, x, y, progress_bar=False)
    return {"losses": done.losses, "end": done.params}


def run() -> dict[str, Any]:
    x = jax.random.normal(jax.random.key(1), (100, 3))
    y = jax.random.bernoulli(jax.random.key(2), jax.nn.sigmoid(x @ jnp.array([1.0, -2.0, 0.5]))).astype(jnp.int32)
    values = jnp.where(x[:, 0] > 0.3, 1.5, -1.0) + 0.5 * x[:, 1]
    few = chain(HMC(logistic, step_size=0.1, num_steps=8, adapt_step_size=False, adapt_mass_matrix=False), 0, 10, x, y)
    long = chain(NUTS(logistic), 200, 500, x, y).get_samples()["weights"]
    predicted = Predictive(logistic, few.get_samples())(jax.random.key(5), x)["label"]
    return {
        "few": few.get_samples(),
        "mixture": chain(NUTS(mixture), 5, 5, values).get_samples(),
        "schools": chain(NUTS(schools), 5, 5).get_samples(),
        "predicted": predicted,
        "variational": variational(x, y),
        "statistics": {"means": long.mean(0), "deviations": long.std(0)},
    }
