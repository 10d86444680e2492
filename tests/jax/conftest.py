"""JAX's own CPU client is what these tests compare with."""

import jax

jax.config.update("jax_platforms", "cpu")
