"""Processes end well: exit codes of processes that end while JAX has work for hlokit."""

import os

import pytest

from tests.jax.pjrt.harness import python
from tests.jax.pjrt.interrupts import interrupted

_PENDING = """
import jax.numpy as jnp
try:
    isinstance(jnp.ones(3) + 1, 5)
except TypeError as error:
    print("TypeError", error)
for _ in range(20):
    try:
        [jnp.ones(3) * k for k in range(3)] + 5
    except TypeError:
        pass
"""
_POOL = """
import sys, threading
import jax, jax.numpy as jnp
import numpy as np

fs = [jax.jit(lambda x, k=k: jnp.sin(x) * k + jax.random.normal(jax.random.key(k), x.shape)) for k in range(4)]
executables = [f.lower(jnp.ones(8)).compile() for f in fs]
kept = [f(jnp.arange(8.0)) for f in fs] + [jax.device_put(np.ones((256, 256), np.float32))]


def work():
    for f in fs * 20:
        f(jnp.ones(8))


for _ in range(2):
    threading.Thread(target=work).start()


class Last:
    def __del__(self):
        try:
            fs[0](jnp.ones(8))
        except Exception:
            pass


sys.modules["kept until the end"] = Last()
print("done", flush=True)
"""
_OUTLIVED = """
import ctypes, sys
import numpy as np
import jax, jax.numpy as jnp
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.memory import read_word
from hlokit.interop.pjrt.table import api


class Writer:
    "Takes what memory Python has freed, and writes to it."

    def __del__(self, kept=[]):
        for size in range(16, 4096, 8):
            kept.extend(b"\\xff" * (size + 0 * k) for k in range(8))


class Caller:
    "Calls the table from the main thread when Python has let go of all modules."

    def __init__(self, name, **fields):
        arguments = layouts.struct(name)(size=layouts.size(name), **fields)
        function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(read_word(api() + layouts.api_offset(name)))
        self.call = function, arguments, ctypes.addressof(arguments)

    def __del__(self):
        function, _, address = self.call
        function(address)


writer = Writer()
weights = np.arange(5000.0, dtype=np.float32)
compiled = jax.jit(lambda x: jnp.sin(x) @ weights).lower(jnp.ones((3, 5000))).compile()
arrays = [jnp.ones(3), compiled(jnp.ones((3, 5000))), jax.device_put(np.ones((512, 512), np.float32))]
view = np.asarray(arrays[2])
callers = [Caller("Plugin_Attributes"), Caller("Client_Devices"), Caller("Client_PlatformName")]
print("done", flush=True)
"""
_LATE = """
import ctypes, os, sys
import jax, jax.numpy as jnp
from hlokit.interop.pjrt import layouts, loaded
from hlokit.interop.pjrt.execute import PROGRAM
from hlokit.interop.pjrt.memory import read_word
from hlokit.interop.pjrt.table import api

compiled = jax.jit(lambda x: x + 1).lower(1.0).compile()
process = ctypes.CDLL(None)


class Late:
    "Calls the table from a thread that is not Python's while the interpreter goes down."

    def __init__(self, name, **fields):
        self.name = name
        self.arguments = layouts.struct(name)(size=layouts.size(name), **fields)
        self.function = ctypes.c_void_p(read_word(api() + layouts.api_offset(name)))
        self.kept = ctypes, os.write, process, compiled

    def __del__(self):
        ctypes, write, process, _ = self.kept
        thread, result = ctypes.c_uint64(), ctypes.c_uint64()
        at = ctypes.c_void_p(ctypes.addressof(self.arguments))
        process.pthread_create(ctypes.byref(thread), None, self.function, at)
        process.pthread_join(thread, ctypes.byref(result))
        write(1, f"{self.name} {bool(result.value)} {sys.is_finalizing()}\\n".encode())


address = next(iter(loaded._loaded))
ctypes.c_uint64.from_address(address + PROGRAM.offset("refs")).value += 1
late = [Late("LoadedExecutable_Destroy", executable=address), Late("Executable_Name", executable=address)]
late += [Late("Client_Destroy"), Late("Event_Destroy")]
for k, one in enumerate(late):
    sys.modules[f"late {k}"] = one
del late, one
"""
_QUEUE = """
import ctypes, gc, threading, time
import jax, jax.numpy as jnp
from hlokit.interop.pjrt import layouts, loaded
from hlokit.interop.pjrt.execute import PROGRAM
from hlokit.interop.pjrt.memory import read_word
from hlokit.interop.pjrt.table import api

compiled = jax.jit(lambda x: x + 1).lower(1.0).compile()
address = next(iter(loaded._loaded))
refs = read_word(address + PROGRAM.offset("refs"))
assert refs >= 1
destroy = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(read_word(api() + layouts.api_offset("LoadedExecutable_Destroy")))
arguments = layouts.struct("LoadedExecutable_Destroy")(layouts.size("LoadedExecutable_Destroy"), 0, address)
ctypes.c_uint64.from_address(address + PROGRAM.offset("refs")).value += 1
other = threading.Thread(target=destroy, args=(ctypes.addressof(arguments),))
other.start()
other.join()
assert address in loaded._loaded and read_word(address + PROGRAM.offset("refs")) >= 1
del compiled
jax.clear_caches()
for _ in range(300):  # jaxlib lets go in a thread of its own, when it likes
    gc.collect()
    loaded.bury()
    if address not in loaded._loaded:
        break
    time.sleep(0.1)
assert address not in loaded._loaded
print("buried")
"""


_FORK = """
import faulthandler, os, warnings
import jax, jax.numpy as jnp
import numpy as np

warnings.simplefilter("ignore")
f = jax.jit(lambda x: jnp.sin(x) + 1)
y = f(np.zeros(8, np.float32))
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(60, exit=True)
    assert np.asarray(y).tolist() == np.asarray(f(np.zeros(8, np.float32))).tolist() == [1] * 8
    assert np.asarray(jax.device_put(np.arange(3))).tolist() == [0, 1, 2]
    try:
        jax.jit(lambda x: x * 3)(1.0)
    except Exception as error:
        os._exit(0 if "spawn" in str(error) else 3)
    os._exit(2)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), float(jax.jit(lambda x: x * 3)(1.0)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_child_of_a_fork_runs_what_was_compiled_and_names_spawn_for_the_rest() -> None:
    """jaxlib's threads are not in the child: a compile there would wait for them forever."""
    done = python("-c", _FORK)
    assert done.returncode == 0, done.stderr
    assert "child 0 3.0" in done.stdout, done.stderr


def test_an_exception_is_pending_while_jax_calls_in() -> None:
    done = python("-c", _PENDING)
    assert done.returncode == 0, done.stderr
    assert "TypeError isinstance()" in done.stdout


def test_threads_run_and_destroy_programs_at_the_end() -> None:
    done = python("-c", _POOL)
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout


def test_what_jax_holds_outlives_python() -> None:
    """Arrays, programs and the table are looked at when Python has freed what it owns; -X dev overwrites that."""
    done = python("-X", "dev", "-c", _OUTLIVED)
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout


def test_other_threads_call_in_while_the_interpreter_goes_down() -> None:
    """Destroying is machine code's; what takes Python is refused."""
    done = python("-c", _LATE)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.split("\n")[:-1])
    refused = {line.split()[0]: line.split()[1] for line in lines}
    assert refused == {
        "LoadedExecutable_Destroy": "False", "Executable_Name": "True", "Client_Destroy": "False",
        "Event_Destroy": "False",
    }  # fmt: skip
    assert all(line.endswith("True") for line in lines), lines


def test_destroying_only_queues() -> None:
    """Whatever thread destroys an executable, Python lets go of it later."""
    done = python("-c", _QUEUE)
    assert done.returncode == 0, done.stderr
    assert "buried" in done.stdout


@pytest.mark.parametrize("code", [0, 3])
def test_exit_codes_are_the_programs_own(code: int) -> None:
    done = python("-c", f"import jax, sys; jax.jit(lambda x: x * 2)(1.0); sys.exit({code})")
    assert done.returncode == code, done.stderr


def test_no_interrupt_is_lost() -> None:
    """python -m tests.jax.pjrt.interrupts --count 10000 sends more."""
    found = interrupted(40, seed=1)
    assert found["handled"] == 40 and found["lost"] == [], found
    assert found["caught"] + sum(found["dropped"].values()) == 40, found


@pytest.mark.slow
def test_twenty_of_twenty_exits_are_clean() -> None:
    codes = [python("-c", _POOL).returncode for _ in range(20)]
    assert codes == [0] * 20
