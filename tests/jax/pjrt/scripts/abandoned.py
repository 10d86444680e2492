"""An interrupt that abandons a compile which has not begun: run by tests/jax/pjrt/interrupts.py --abandoned.

jaxlib compiles on threads of its own. An interrupt ends the wait of the thread that asked, and with the exception's
frames goes the MLIR context of the module, which jaxlib's thread reads later. Here the compile stands behind others
until the context is gone. MALLOC_PERTURB_ overwrites memory that is freed. Prints `alive` if the process survives.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

faulthandler.enable()
OTHERS = 40
"""More than jaxlib has threads."""


def lowered(k: int, work: int) -> Any:
    def f(x: jax.Array) -> jax.Array:
        for i in range(work):
            x = jnp.sin(x @ x) + (k + i) * jnp.cos(x).sum(0)
        return x

    return jax.jit(f).trace(np.ones((7 + k, 7 + k), np.float32)).lower()


def abandon(k: int) -> bool:
    """Whether the interrupt came while the compile was waited for."""
    module = lowered(k, 1)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        module.compile()
    except KeyboardInterrupt:
        return True
    return False


def main() -> None:
    lowered(0, 1).compile()
    modules = [lowered(1 + k, 40) for k in range(OTHERS)]
    threads = [threading.Thread(target=module.compile) for module in modules]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    came = abandon(OTHERS + 1)
    jax.clear_caches()
    gc.collect()
    for thread in threads:
        thread.join()
    print("alive" if came else "the compile ended before the interrupt")


main()
