"""HLOKIT_DEBUG=first-nan: a NaN in a jitted function's result is an error that names the line which made it."""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@jax.jit
def settled(w, x):
    def body(c, _):
        c = c - 0.5
        return c + jnp.log(c * w), None  # the line

    return jnp.where(x > 0, lax.scan(body, x, None, length=6)[0], 0.0).sum()


def check_results_without():
    assert np.isfinite(settled(3.0, jnp.arange(6.0, 10.0)))


def check_the_line():
    try:
        settled(1.0, jnp.arange(1.0, 5.0))
    except Exception as error:
        said = str(error)
    else:
        raise AssertionError("no error")
    with open(__file__, encoding="utf-8") as file:
        line = next(n for n, text in enumerate(file, 1) if text.endswith("# the line\n"))
    assert re.search(rf"%log\S* = f32\[4\].*# \S*debug\.py:{line}", said.splitlines()[1]), said
    session = re.search(r"hlokit debug (\S+)", said)
    assert session is not None, said
    os.remove(session[1])


def check_arguments_with():
    assert np.isnan(settled(1.0, np.array([1, np.nan, 3, 4], np.float32)))
