"""Runs a script's `run()` on the platform of this process: `run.py PLATFORM SCRIPT RESULTS.npz`."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location

import jax
import numpy as np


def main() -> None:
    platform, script, results = sys.argv[1:]
    assert jax.default_backend() == platform, jax.default_backend()
    spec = spec_from_file_location("script", script)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["script"] = module
    spec.loader.exec_module(module)
    leaves, _ = jax.tree.flatten_with_path(module.run())
    np.savez(results, **{jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves})


if __name__ == "__main__":
    main()
