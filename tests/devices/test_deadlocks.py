"""No hang: GRP-8, COMM-11, COMM-12. What is refuted before running, what only running shows, what is proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.analysis.rendezvous import PROVED, REFUTED, UNDECIDED, Finding, check_rendezvous
from hlokit.tools.check import check
from tests.devices.programs import F, add, is_replica, on, program
from tests.fuzz.devices import check_deadlock, check_program
from tests.rules.grid import FOUR, TWO, same
from tests.rules.labels import rejects, rule

Function = Callable[[hk.Builder, hk.XlaOp], Any]


def reduced(x: hk.XlaOp, channel: int | None = None, groups: Any = ()) -> hk.XlaOp:
    return hk.all_reduce(x, add, groups, channel)


def total(x: hk.XlaOp) -> hk.XlaOp:
    return hk.reduce(x, x.builder.constant(F(0)), add, [0])


def found(function: Function, replicas: int = 2, **options: Any) -> Finding:
    module = program(function, hk.f32[2])
    return check_rendezvous([module] * replicas, replicas, 1, **options)


def loop(count: Callable[[hk.Builder, hk.XlaOp], hk.XlaOp], groups: Any = ()) -> Function:
    """Reduces x, `count` times."""

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        state = hk.tuple_(b, [count(b, x), x])
        return hk.while_(lambda s: hk.gt(s[0], 0), lambda s: [s[0] - 1, reduced(s[1], None, groups)], state)[1]

    return function


def as_integer(x: hk.XlaOp) -> hk.XlaOp:
    return hk.convert_element_type(x, hk.s32)


def either(selector: Callable[[hk.Builder, hk.XlaOp], hk.XlaOp], then: Any, otherwise: Any) -> Function:
    return lambda b, x: hk.conditional(selector(b, x), x, then, x, otherwise)


def first(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
    return is_replica(b, 0)


def by_data(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
    return hk.gt(total(x), 0.0)


def by_pairs(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
    """The same in each half of four replicas."""
    return hk.gt(total(reduced(x, None, [[0, 1], [2, 3]])), 0.0)


def itself(x: hk.XlaOp) -> hk.XlaOp:
    return x


PAIRS = [[0, 1], [2, 3]]

REFUTED_ONES: dict[str, Function] = {
    "GRP-8: one branch": either(first, reduced, itself),
    "GRP-8: two instructions": either(first, reduced, lambda v: reduced(v + v)),
    "GRP-8: crossed channels": either(first, lambda v: reduced(reduced(v, 1), 2), lambda v: reduced(reduced(v, 2), 1)),
    "GRP-8: as often as the replica's number": loop(lambda b, x: as_integer(b.replica_id())),
    "GRP-8: on every way": lambda b, x: either(first, reduced, itself)(b, either(by_data, itself, hk.neg)(b, x)),
    "GRP-6: kinds of groups": either(
        first,
        lambda v: hk.all_reduce(v, add, [[0, 1]], 1, use_global_device_ids=True),
        lambda v: hk.all_reduce(v, add, [[1, 0]], 1, use_global_device_ids=True),
    ),
    "GRP-6: computations": either(
        first, lambda v: reduced(v, 1), lambda v: hk.all_reduce(v, lambda x, y: x * y, channel_id=1)
    ),
    "GRP-2: groups": lambda b, x: reduced(x, None, [[0, 1, 2]]),
}

PROVED_ONES: dict[str, tuple[Function, int]] = {
    "straight": (lambda b, x: reduced(reduced(x), None, [[1, 0]]), 2),
    "one channel in both branches": (either(first, lambda v: reduced(v, 1), lambda v: reduced(-v, 1)), 2),
    "a loop of many passes": (loop(lambda b, x: b.constant(np.int32(10**6))), 2),
    "a count made of ids": (loop(lambda b, x: as_integer(b.replica_id()) * 0 + 3), 2),
    "data that all share": (lambda b, x: either(by_data, reduced, itself)(b, reduced(x)), 2),
    "a loop until all agree": (loop(lambda b, x: as_integer(total(reduced(x)))), 2),
    "pairs that agree on a branch": (either(by_pairs, lambda v: reduced(v, None, PAIRS), itself), 4),
    "pairs that agree on a loop": (loop(lambda b, x: as_integer(total(reduced(x, None, PAIRS))), PAIRS), 4),
}

UNDECIDED_ONES: dict[str, tuple[Function, int]] = {
    "data": (either(by_data, reduced, itself), 2),
    "a loop by data": (loop(lambda b, x: as_integer(total(x))), 2),
    "pairs decide for all": (either(by_pairs, reduced, itself), 4),
}


@pytest.mark.parametrize("name", REFUTED_ONES)
def test_refuted(name: str) -> None:
    finding = found(REFUTED_ONES[name])
    label = name.split(":")[0]
    assert finding.state == REFUTED and f"[{label}]" in finding.reason, finding
    with rejects(label):
        on(2, REFUTED_ONES[name], TWO)


@rule("GRP-8")
@pytest.mark.parametrize("name", PROVED_ONES)
def test_proved(name: str) -> None:
    function, replicas = PROVED_ONES[name]
    finding = found(function, replicas)
    assert finding.state == PROVED, finding


@rule("GRP-8")
@pytest.mark.parametrize("name", UNDECIDED_ONES)
def test_undecided(name: str) -> None:
    function, replicas = UNDECIDED_ONES[name]
    finding = found(function, replicas)
    assert finding.state == UNDECIDED and "[GRP-8]" in finding.reason and finding.reason.startswith("if "), finding


def test_what_is_too_long_to_follow_is_undecided() -> None:
    function = PROVED_ONES["a count made of ids"][0]
    assert found(function, steps=10) == Finding(UNDECIDED, "the program has too many steps to be analysed")


@rule("GRP-8")
def test_data_decides_when_running() -> None:
    same(on(2, UNDECIDED_ONES["data"][0], TWO), [[4.0, 7.75]] * 2)
    with pytest.raises(hk.DeadlockError) as caught:
        on(2, UNDECIDED_ONES["data"][0], [TWO[0], -TWO[1]])
    ((device, instruction, missing),) = caught.value.waits
    assert (device, missing) == ("replica 0", ["replica 1"]) and instruction.startswith("all-reduce")
    assert "for replica 1, which has finished" in str(caught.value)


@rule("GRP-8")
def test_a_loop_fed_by_infeed_runs_more_often_on_one_replica() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        return hk.while_(lambda s: s.builder.infeed(hk.pred[()]), reduced, x)

    fed = [[True, True, False], [True, True, False]]
    same(on(2, function, TWO, infeed=fed), [[8.0, 15.5]] * 2)
    with pytest.raises(hk.DeadlockError, match="replica 0 waits at all-reduce"):
        on(2, function, TWO, infeed=[fed[0], [True, False]])


@rule("GRP-8")
def test_who_is_missing_of_a_group() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        return either(by_data, reduced, itself)(b, x)

    with pytest.raises(hk.DeadlockError) as caught:
        on(4, function, [FOUR[0], -FOUR[1], FOUR[2], -FOUR[3]])
    assert [(device, missing) for device, _, missing in caught.value.waits] == [
        ("replica 0", ["replica 1", "replica 3"]),
        ("replica 2", ["replica 1", "replica 3"]),
    ]


# -- channels


def _turn(receives: int, sends: int, first: str) -> hk.HloModule:
    """One that receives on a channel and sends on another, in the order that the token forces."""

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        token = b.create_token()
        if first == "send":
            token = hk.send_with_token(x, token, hk.ChannelHandle(sends))
        data, token = hk.recv_with_token(token, x.shape, hk.ChannelHandle(receives))
        if first == "recv":
            hk.send_with_token(x, token, hk.ChannelHandle(sends))
        return data

    return program(function, hk.f32[2], name=f"{first}s_first")


@rule("COMM-12")
def test_each_waits_for_the_other() -> None:
    """A: Recv(c1), RecvDone(c1), Send(c2); B: Recv(c2), RecvDone(c2), Send(c1)."""
    programs = [(_turn(1, 2, "recv"), [TWO[0]]), (_turn(2, 1, "recv"), [TWO[1]])]
    assert check_rendezvous([module for module, _ in programs], 2, 1).state == REFUTED
    with pytest.raises(hk.DeadlockError, match=r"COMM-12\]\n.*channel 1, for replica 1\n.*channel 2, for replica 0"):
        hk.evaluate_mpmd(programs)


@rule("COMM-11")
def test_a_send_waits_until_the_other_is_ready() -> None:
    with rejects("COMM-12"):
        hk.evaluate_mpmd([(_turn(1, 2, "send"), [TWO[0]]), (_turn(2, 1, "send"), [TWO[1]])])
    programs = [(_turn(1, 2, "send"), [TWO[0]]), (_turn(2, 1, "recv"), [TWO[1]])]
    assert check_rendezvous([module for module, _ in programs], 2, 1).state == PROVED
    same(hk.evaluate_mpmd(programs), [TWO[1], TWO[0]])


@rule("COMM-11", "COMM-12")
def test_without_tokens_between_them_sends_do_not_wait_for_recvs() -> None:
    def function(sends: int, receives: int) -> hk.HloModule:
        def talk(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
            received = hk.recv(b, x.shape, hk.ChannelHandle(receives))
            hk.send(x, hk.ChannelHandle(sends))
            return received

        return program(talk, hk.f32[2], name=f"talk_{sends}")

    same(hk.evaluate_mpmd([(function(1, 2), [TWO[0]]), (function(2, 1), [TWO[1]])]), [TWO[1], TWO[0]])


# -- the command, and random programs


@rule("GRP-8")
def test_the_command_says_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "module.hlo"
    file.write_text(str(program(either(by_data, reduced, itself), hk.f32[2])))
    check(file, replicas=2)
    assert "2 replicas of 1 partition: undecided: if conditional" in capsys.readouterr().out
    file.write_text(str(program(lambda b, x: reduced(x), hk.f32[2])))
    check(file, replicas=3)
    assert "proved: every device reaches the same collectives" in capsys.readouterr().out
    file.write_text(str(program(either(first, reduced, itself), hk.f32[2])))
    assert check(file, replicas=2) == 1 and "GRP-8" in capsys.readouterr().err


def test_random_programs_agree_with_the_model() -> None:
    for seed in range(40):
        check_program(seed)


@rule("GRP-8", "COMM-11", "COMM-12")
def test_random_deadlocks_are_refused_or_reported() -> None:
    for seed in range(44):
        check_deadlock(seed)
