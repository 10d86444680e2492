"""The libraries that programs are written in, imported when first used: the list of programs is read where neither JAX
nor torch is installed."""

from __future__ import annotations

import importlib
from typing import Any


class Lazy:
    """A module imported when an attribute of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


jax = Lazy("jax")
jnp = Lazy("jax.numpy")
lax = Lazy("jax.lax")
nn = Lazy("jax.nn")
random = Lazy("jax.random")
linalg = Lazy("jax.scipy.linalg")
special = Lazy("jax.scipy.special")
scipy_fft = Lazy("scipy.fft")
scipy_linalg = Lazy("scipy.linalg")
torch = Lazy("torch")
functional = Lazy("torch.nn.functional")
