"""The thread pool: every chunk once, whoever calls; and a process that ends cleanly whatever its threads do."""

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from hlokit.cpu.jit import objects as jit
from hlokit.cpu.jit.pool import Pool, pool
from hlokit.cpu.jit.pool_code import written
from hlokit.cpu.target import baseline, host

CODE = """
declare void @hlokit_parallel(ptr, ptr, ptr, i64)
@hlokit_pool = external global i8

; adds 1 + its number to the element of each chunk, `%weight` times
define internal void @add(ptr %t, i64 %b, i64 %e) {
entry:
  %some = icmp slt i64 %b, %e
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ %b, %entry ], [ %next, %counted ]
  %at = getelementptr i64, ptr %t, i64 %i
  %weight_at = getelementptr i64, ptr %t, i64 64
  %weight = load i64, ptr %weight_at
  br label %count
count:
  %j = phi i64 [ 0, %loop ], [ %k, %count ]
  %old = load volatile i64, ptr %at
  %one = add i64 %old, 1
  %new = add i64 %one, %i
  store volatile i64 %new, ptr %at
  %k = add i64 %j, 1
  %again = icmp slt i64 %k, %weight
  br i1 %again, label %count, label %counted
counted:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %e
  br i1 %more, label %loop, label %end
end:
  ret void
}

define internal void @nest(ptr %t, i64 %b, i64 %e) {
entry:
  %inner = getelementptr i64, ptr %t, i64 65
  br label %loop
loop:
  %i = phi i64 [ %b, %entry ], [ %next, %loop ]
  %offset = mul i64 %i, 65
  %mine = getelementptr i64, ptr %inner, i64 %offset
  call void @hlokit_parallel(ptr @hlokit_pool, ptr @add, ptr %mine, i64 8)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %e
  br i1 %more, label %loop, label %end
end:
  ret void
}

define void @jobs(ptr %t, i64 %chunks, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @hlokit_parallel(ptr @hlokit_pool, ptr @add, ptr %t, i64 %chunks)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %end
end:
  ret void
}

; adds 1 + its number to the element of each chunk
define internal void @mark(ptr %t, i64 %b, i64 %e) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %b, %entry ], [ %next, %loop ]
  %at = getelementptr i64, ptr %t, i64 %i
  %old = load i64, ptr %at
  %one = add i64 %old, 1
  %new = add i64 %one, %i
  store i64 %new, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %e
  br i1 %more, label %loop, label %end
end:
  ret void
}

declare i32 @usleep(i32)
declare i32 @sched_yield()
declare i64 @pthread_self()

; stores the thread that runs each chunk, which takes a millisecond
define internal void @who(ptr %t, i64 %b, i64 %e) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %b, %entry ], [ %next, %loop ]
  %at = getelementptr i64, ptr %t, i64 %i
  %me = call i64 @pthread_self()
  store i64 %me, ptr %at
  %slept = call i32 @usleep(i32 1000)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %e
  br i1 %more, label %loop, label %end
end:
  ret void
}

define void @whose(ptr %t, i64 %chunks) {
  call void @hlokit_parallel(ptr @hlokit_pool, ptr @who, ptr %t, i64 %chunks)
  ret void
}

; as @mark, with a rest before about one chunk in four and after about one in eight, by the chunk's number and the job's
define internal void @rest(ptr %t, i64 %b, i64 %e) {
entry:
  %next = add i64 %b, 1
  %one = add i64 %b, 0
  %job = load i64, ptr %t
  %mixed = mul i64 %b, 2654435761
  %seed = add i64 %mixed, %job
  %folded = mul i64 %seed, 6364136223846793005
  %dice = lshr i64 %folded, 40
  %low = and i64 %dice, 3
  %rests = icmp eq i64 %low, 0
  br i1 %rests, label %before, label %work
before:
  %long = lshr i64 %dice, 5
  %us = and i64 %long, 63
  %us32 = trunc i64 %us to i32
  %slept = call i32 @usleep(i32 %us32)
  br label %work
work:
  %from = getelementptr i64, ptr %t, i64 1
  call void @mark(ptr %from, i64 %one, i64 %next)
  %high = lshr i64 %dice, 12
  %few = and i64 %high, 7
  %yields = icmp eq i64 %few, 0
  br i1 %yields, label %after, label %rests.next
after:
  %yielded = call i32 @sched_yield()
  br label %rests.next
rests.next:
  %more = icmp slt i64 %next, %e
  br i1 %more, label %others, label %end
others:
  call void @rest(ptr %t, i64 %next, i64 %e)
  br label %end
end:
  ret void
}

; the table's first element is the number of the job
define void @resting(ptr %t, i64 %chunks, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %job = load i64, ptr %t
  %after = add i64 %job, 1
  store i64 %after, ptr %t
  call void @hlokit_parallel(ptr @hlokit_pool, ptr @rest, ptr %t, i64 %chunks)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %end
end:
  ret void
}

define void @marked(ptr %t, i64 %chunks) {
  call void @hlokit_parallel(ptr @hlokit_pool, ptr @mark, ptr %t, i64 %chunks)
  ret void
}

define void @nested(ptr %t, i64 %chunks) {
  call void @hlokit_parallel(ptr @hlokit_pool, ptr @nest, ptr %t, i64 %chunks)
  ret void
}
"""


class Program:
    def __init__(self, of: Pool) -> None:
        self.library = jit.Library([jit.compile_object(CODE, host(), 1)], of.symbols)
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        self._jobs = ctypes.CFUNCTYPE(None, pointer, number, number)(self.library.address("jobs"))
        self._marked = ctypes.CFUNCTYPE(None, pointer, number)(self.library.address("marked"))
        self._whose = ctypes.CFUNCTYPE(None, pointer, number)(self.library.address("whose"))
        self._resting = ctypes.CFUNCTYPE(None, pointer, number, number)(self.library.address("resting"))
        self._nested = ctypes.CFUNCTYPE(None, pointer, number)(self.library.address("nested"))

    def jobs(self, chunks: int, times: int, weight: int = 1) -> np.ndarray:
        table = np.zeros(65, np.int64)
        table[64] = weight
        self._jobs(table.ctypes.data, chunks, times)
        return table[:64]

    def marked(self, chunks: int, times: int) -> np.ndarray:
        table = np.zeros(chunks + 1, np.int64)
        for _ in range(times):
            self._marked(table.ctypes.data, chunks)
        return table

    def whose(self, table: np.ndarray) -> None:
        """Stores the thread that runs each chunk, which takes a millisecond."""
        self._whose(table.ctypes.data, len(table))

    def resting(self, chunks: int, times: int, seed: int = 0) -> np.ndarray:
        """Jobs whose chunks rest now and then."""
        table = np.zeros(chunks + 1, np.int64)
        table[0] = seed
        self._resting(table.ctypes.data, chunks, times)
        assert table[0] == seed + times
        return table[1:]

    def nested(self, chunks: int) -> np.ndarray:
        table = np.zeros((chunks + 1) * 65, np.int64)
        table[64::65] = 1
        self._nested(table.ctypes.data, chunks)
        return table.reshape(chunks + 1, 65)[1:, :64]


def wanted(chunks: int, times: int, weight: int = 1) -> np.ndarray:
    numbers = np.arange(64)
    return np.where(numbers < chunks, (numbers + 1) * times * weight, 0)


@pytest.fixture(scope="module", params=[1, 2, 5])
def program(request: pytest.FixtureRequest) -> Program:
    return Program(pool(request.param))


@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 16, 64])
def test_every_chunk_runs_once_a_job(program: Program, chunks: int) -> None:
    for times in (1, 300):
        np.testing.assert_array_equal(program.jobs(chunks, times), wanted(chunks, times))


@pytest.mark.parametrize("chunks", [65_535, 65_536, 65_537, 131_070, 1_000_003])
def test_more_chunks_than_are_claimed_one_by_one(program: Program, chunks: int) -> None:
    np.testing.assert_array_equal(program.marked(chunks, 3)[:-1], 3 * np.arange(1, chunks + 1))
    assert program.marked(chunks, 1)[-1] == 0


def test_a_sleeping_pool_wakes(program: Program) -> None:
    for _ in range(5):
        time.sleep(0.002)
        np.testing.assert_array_equal(program.jobs(16, 1), wanted(16, 1))


def test_a_caller_that_waits_long_sleeps_and_wakes(program: Program) -> None:
    np.testing.assert_array_equal(program.jobs(5, 3, 400_000), wanted(5, 3, 400_000))


def test_workers_that_are_put_aside_lose_no_chunk(program: Program) -> None:
    for chunks in (2, 3, 7, 33):
        np.testing.assert_array_equal(program.resting(chunks, 200, chunks), 200 * np.arange(1, chunks + 1))


def test_jobs_inside_chunks(program: Program) -> None:
    np.testing.assert_array_equal(program.nested(6), [wanted(8, 1)] * 6)


def test_callers_in_several_threads(program: Program) -> None:
    results: list[np.ndarray] = []
    callers = [threading.Thread(target=lambda: results.append(program.jobs(16, 2000))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for result in results:
        np.testing.assert_array_equal(result, wanted(16, 2000))
    assert len(results) == 4


def test_workers_join_a_job_that_began_while_they_were_at_another() -> None:
    program = Program(pool(2))
    short, long = np.zeros(100, np.int64), np.zeros(400, np.int64)
    other = threading.Thread(target=program.whose, args=(short,))
    other.start()
    while not short.any():
        time.sleep(0.001)
    program.whose(long)
    other.join()
    assert all(short) and all(long)
    assert len(set(long)) == 2


def test_one_pool_for_each_number_of_threads() -> None:
    assert pool(2) is pool(2) and pool(2).address != pool(3).address
    assert pool(0).threads == 1 and pool().threads >= 1 and pool(10**6).threads < 10**6


def test_a_closed_pool_leaves_jobs_to_their_callers() -> None:
    made = pool(4)
    program = Program(made)
    program.jobs(16, 10)
    made.close()
    np.testing.assert_array_equal(program.jobs(16, 10), wanted(16, 10))
    made.close()
    made.reset()
    np.testing.assert_array_equal(program.jobs(16, 10), wanted(16, 10))


def test_sleep_by_condition_variable() -> None:
    """As on systems that have no futex."""
    code = jit.Library([jit.compile_object(written(host(), has_futex=False), host())])
    memory = (ctypes.c_char * 16384)()
    made = Pool(3, ctypes.addressof(memory), code)
    made.reset()
    program = Program(made)
    for _ in range(20):
        np.testing.assert_array_equal(program.jobs(16, 10), wanted(16, 10))
        time.sleep(0.001)
    np.testing.assert_array_equal(program.jobs(5, 1, 400_000), wanted(5, 1, 400_000))
    made.close()


def test_the_code_is_made_for_other_machines() -> None:
    assert "yield" in jit.assembly(written(baseline("aarch64")), baseline("aarch64"))
    assert "pause" in jit.assembly(written(baseline("x86-64")), baseline("x86-64"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork_has_workers_of_its_own() -> None:
    program = Program(pool(3))
    program.jobs(16, 10)
    child = os.fork()
    if not child:
        same = np.array_equal(program.jobs(16, 10), wanted(16, 10)) and len(os.listdir("/proc/self/task")) > 1
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(program.jobs(16, 10), wanted(16, 10))


ENDS = {
    "parked": "program.jobs(16, 10); time.sleep(0.002)",
    "spinning": "program.jobs(16, 10)",
    "busy": "threading.Thread(target=program.jobs, args=(16, 10**9, 1000), daemon=True).start(); time.sleep(0.002)",
    "two": "[threading.Thread(target=program.jobs, args=(16, 10**9), daemon=True).start() for _ in '12']",
    "calling": textwrap.dedent("""
        def forever():
            while True:
                program.jobs(16, 5)
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.002)"""),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_process_exits_cleanly(name: str) -> None:
    """Four times each, 20 in all."""
    script = f"""
import threading, time
from hlokit.cpu.jit.pool import pool
from tests.cpu.test_pool import Program
program = Program(pool(3))
{ENDS[name]}
print("end")
"""
    for _ in range(2):
        ends = [
            subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        for process in ends:
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out, err) == (0, b"end\n", b"")
