"""Executables are pickled: the copy is compiled again, with the same options."""

from __future__ import annotations

import pickle  # noqa: TID251  # of an executable that this test made
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk

LOADS = """
import pickle, sys
import numpy as np
exe = pickle.load(open(sys.argv[1], "rb"))
np.save(sys.argv[2], exe(np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)))
"""


def summed() -> hk.HloModule:
    b = hk.Builder("summed")
    x = b.parameter(0, hk.f32[4, 6], "x")
    return b.build(hk.reduce(hk.tanh(x), b.constant(0.0, hk.f32), hk.add, [1]))


@pytest.mark.parametrize("strict", [True, False])
def test_an_executable_comes_back_with_its_options(strict: bool) -> None:
    exe = hk.compile(summed(), strict=strict, threads=1)
    again = pickle.loads(pickle.dumps(exe))
    assert again is not exe and (again.strict, again.threads, again.target) == (strict, 1, exe.target)
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    assert again(x).tobytes() == exe(x).tobytes()
    assert str(again.source) == str(exe.source)


def test_another_process_loads_it(tmp_path: Path) -> None:
    exe = hk.compile(summed(), strict=True)
    (tmp_path / "exe.pickle").write_bytes(pickle.dumps(exe))
    command = [sys.executable, "-c", LOADS, str(tmp_path / "exe.pickle"), str(tmp_path / "result.npy")]
    subprocess.run(command, check=True)
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    assert np.load(tmp_path / "result.npy").tobytes() == hk.evaluate(summed(), x).tobytes()


def test_executables_of_several_devices_are_pickled() -> None:
    b = hk.Builder("total")
    module = b.build(hk.all_reduce(b.parameter(0, hk.f32[2], "x"), hk.add))
    again = pickle.loads(pickle.dumps(hk.compile(module, replicas=2)))
    one, two = again([np.float32([1, 2])], [np.float32([3, 4])])
    assert one.tolist() == two.tolist() == [4, 6]
