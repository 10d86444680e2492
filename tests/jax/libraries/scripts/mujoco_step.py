"""mujoco-mjx, which takes JAX's CPU and no platform that it does not know: steps of bodies that fall and touch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

MODEL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 .1"/>
    <body pos="0 0 .15"><freejoint/><geom type="sphere" size=".1"/></body>
    <body pos="1 0 1"><joint type="hinge" axis="0 1 0"/><geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/></body>
  </worldbody>
</mujoco>
"""


def run() -> dict[str, Any]:
    model = mujoco.MjModel.from_xml_string(MODEL)
    device_model, data = mjx.put_model(model), mjx.put_data(model, mujoco.MjData(model))
    step = jax.jit(mjx.step)
    path = []
    for _ in range(60):
        data = step(device_model, data)
        path.append(data.qpos)
    return {"path": jnp.stack(path), "velocity": data.qvel}
