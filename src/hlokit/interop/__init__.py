"""Other programs' interfaces on hlokit: JAX, PJRT, jaxlib's xla_client."""
