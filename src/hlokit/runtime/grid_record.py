"""The record by which machine code runs a program on several devices; native_grid.py fills it."""

from hlokit.cpu.llvm import I64, POINTER, Record

GRID = Record(
    "Grid",
    {
        "take": POINTER,
        "run": POINTER,
        "leave": POINTER,
        "devices": I64,
        "entry": POINTER,
        "pool": POINTER,
        "key": I64,
        "stop_key": I64,
        "places": POINTER,
        "state": POINTER,
        "size": I64,
    },
)
"""take, run, leave   the three functions
places   of each device the address that its thread is to have under the `key`, for its meetings
state    the run's RUN, with which `size` bytes begin that are zero before the first run, and before one after a run
         that failed; threads have it under the `stop_key`
"""
