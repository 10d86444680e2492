"""How ops of structure, control flow, communication, and collectives are written: HOP-19 .. HOP-42, HASYNC.

Every line was read and printed by XLA's own parser and printer (jaxlib 0.10.2) and came out as it stands here.
"""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.verifier import verify
from tests.rules.labels import rejects, rule

HEAD = """HloModule m, replica_count=2

%negated (p.0: f32[4]) -> f32[4] {
  %p.0 = f32[4]{0} parameter(0)
  ROOT %n.0 = f32[4]{0} negate(%p.0)
}

%sum (p.1: f32[], q.1: f32[]) -> f32[] {
  %p.1 = f32[] parameter(0)
  %q.1 = f32[] parameter(1)
  ROOT %n.1 = f32[] add(%p.1, %q.1)
}

%below (p.2: f32[4]) -> pred[] {
  %p.2 = f32[4]{0} parameter(0)
  ROOT %n.2 = pred[] constant(false)
}

%twice (p.3: f32[4]) -> f32[4] {
  %p.3 = f32[4]{0} parameter(0)
  %m.3 = f32[4]{0} negate(%p.3)
  ROOT %n.3 = f32[4]{0} negate(%m.3)
}, execution_thread="w"

ENTRY %e (i: f32[4], c: pred[], k: s32[], t: token[], j: s32[2]) -> f32[4] {
  %i = f32[4]{0} parameter(0)
  %c = pred[] parameter(1)
  %k = s32[] parameter(2)
  %t = token[] parameter(3)
  %j = s32[2]{0} parameter(4)
"""


def parsed(*lines: str) -> hk.HloModule:
    return hk.parse(HEAD + "".join(f"  {line}\n" for line in lines) + "  ROOT %root = f32[4]{0} copy(%i)\n}\n")


GLOBAL = "use_global_device_ids=true"
ALL_REDUCE = f"%x = f32[4]{{0}} all-reduce(%i), channel_id=1, replica_groups={{{{0,1}}}}, {GLOBAL}, to_apply=%sum"
ALL_GATHER = f"%x = f32[8]{{0}} all-gather(%i), channel_id=2, replica_groups=[1,2]<=[2], dimensions={{0}}, {GLOBAL}"
PAIRS = "((f32[4]{0}, f32[4]{0}), (f32[8]{0}, f32[8]{0}))"

ROWS = [
    ("HOP-19 map", "%x = f32[4]{0} map(%i, %i), dimensions={0}, to_apply=%sum"),
    ("HOP-19 call", "%x = f32[4]{0} call(%i), to_apply=%negated"),
    ("HOP-19 composite", "%x = f32[4]{0} call(%i), to_apply=%negated, is_composite=true"),
    ("HOP-20 while", "%x = f32[4]{0} while(%i), condition=%below, body=%negated"),
    (
        "HOP-20 predicated",
        "%x = f32[4]{0} conditional(%c, %i, %i), true_computation=%negated, false_computation=%negated",
    ),
    ("HOP-20 indexed", "%x = f32[4]{0} conditional(%k, %i, %i), branch_computations={%negated, %negated}"),
    ("HOP-22 tuple", "%x = (f32[4]{0}, s32[]) tuple(%i, %k)", "%y = s32[] get-tuple-element(%x), index=1"),
    ("HOP-22 tokens", "%x = token[] after-all()", "%y = token[] after-all(%x, %t)"),
    ("HOP-28 infeed", '%x = (f32[4]{0}, token[]) infeed(%t), infeed_config="abc"'),
    (
        "HOP-28 no config",
        "%x = (f32[4]{0}, token[]) infeed(%t)",
        "%y = token[] outfeed(%i, %t), outfeed_shape=f32[4]{0}",
    ),
    ("HOP-28 outfeed", '%x = token[] outfeed(%i, %t), outfeed_shape=f32[4]{0}, outfeed_config="q"'),
    (
        "HOP-29 send",
        "%x = (f32[4]{0}, u32[], token[]) send(%i, %t), channel_id=1, is_host_transfer=true",
        "%y = token[] send-done(%x), channel_id=1, is_host_transfer=true",
    ),
    (
        "HOP-29 recv",
        "%x = (f32[4]{0}, u32[], token[]) recv(%t), channel_id=2",
        "%y = (f32[4]{0}, token[]) recv-done(%x), channel_id=2",
    ),
    (
        "HOP-31 all-reduce",
        ALL_REDUCE,
    ),
    (
        "HOP-31 started",
        "%x = (f32[4]{0}, f32[4]{0}) all-reduce-start(%i, %i), replica_groups={}, to_apply=%sum",
        "%y = (f32[4]{0}, f32[4]{0}) all-reduce-done(%x)",
    ),
    (
        "HOP-32 all-gather",
        ALL_GATHER,
    ),
    (
        "HOP-32 started",
        "%x = (f32[4]{0}, f32[8]{0}) all-gather-start(%i), replica_groups={{0,1}}, dimensions={0}",
        "%y = f32[8]{0} all-gather-done(%x)",
    ),
    (
        "HOP-32 started with tuples",
        f"%x = {PAIRS} all-gather-start(%i, %i), replica_groups={{}}, dimensions={{0}}",
        "%y = (f32[8]{0}, f32[8]{0}) all-gather-done(%x)",
    ),
    ("HOP-33", "%x = f32[2]{0} reduce-scatter(%i), replica_groups={}, dimensions={0}, to_apply=%sum"),
    ("HOP-34 array", "%x = f32[4]{0} all-to-all(%i), replica_groups={{0,1}}, dimensions={0}"),
    ("HOP-34 tuple", "%x = (f32[4]{0}, f32[4]{0}) all-to-all(%i, %i), replica_groups={{0,1}}"),
    ("HOP-35 plain", "%x = f32[4]{0} collective-permute(%i), source_target_pairs={{0,1},{1,0}}"),
    (
        "HOP-35 started",
        "%x = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%i), source_target_pairs={{0,1}}",
        "%y = f32[4]{0} collective-permute-done(%x)",
    ),
    (
        "HOP-35 in place",
        "%x = (s32[]) tuple(%k)",
        "%y = f32[4]{0} collective-permute(%i, %i, %x, %x), source_target_pairs={{0,1}}, slice_sizes={{2}}",
    ),
    ("HOP-36 broadcast", "%x = f32[4]{0} collective-broadcast(%i), replica_groups={{0,1}}"),
    ("HOP-36 ragged", "%x = f32[4]{0} ragged-all-to-all(%i, %i, %j, %j, %j, /*index=5*/%j), replica_groups={{0,1}}"),
    ("HOP-37", "%x = u32[] partition-id()", "%y = u32[] replica-id()"),
    (
        "HOP-40",
        "%x = f32[4]{0} fusion(%i), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%negated",
    ),
    (
        "HOP-41",
        "%x = (f32[4]{0}, f32[4]{0}, u32[]) copy-start(%i), cross_program_prefetch_index=0",
        "%y = f32[4]{0} copy-done(%x)",
    ),
    ("HOP-42", '%x = f32[4]{0} domain(%i), domain={kind="sharding", entry={replicated}, exit={maximal device=0}}'),
    (
        "HASYNC-1 HASYNC-5",
        '%x = ((f32[4]{0}), f32[4]{0}, u32[]) async-start(%i), async_execution_thread="w", calls=%twice',
        "%y = ((f32[4]{0}), f32[4]{0}, u32[]) async-update(%x)",
        "%z = f32[4]{0} async-done(%y)",
    ),
    (
        "HASYNC-2 HASYNC-3",
        '%x = ((f32[4]{0}), f32[4]{0}) reverse-start(%i), async_execution_thread="v", dimensions={0}',
        "%y = ((f32[4]{0}), f32[4]{0}) reverse-update(%x)",
        "%z = f32[4]{0} reverse-done(%y)",
    ),
]


@pytest.mark.parametrize("lines", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_lines_come_out_as_they_went_in(lines: tuple[str, ...]) -> None:
    module = parsed(*lines)
    printed = [line.strip() for line in str(module).splitlines()]
    assert set(lines) <= set(printed), str(module)
    assert str(hk.parse(str(module))) == str(module)
    verify(module)


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("%x = f32[4]{0} map(%i, %i), to_apply=%sum", ROWS[0][1]),
        ("%x = token[] outfeed(%i, %t)", "%x = token[] outfeed(%i, %t), outfeed_shape=f32[4]{0}"),
        (
            "%x = f32[4]{0} all-reduce(%i), mode=flattened_id, to_apply=%sum",
            "%x = f32[4]{0} all-reduce(%i), replica_groups={}, to_apply=%sum",
        ),
    ],
    ids=["HOP-19: dimensions", "HOP-28: outfeed_shape", "HOP-31: mode"],
)
def test_what_is_left_out_is_filled_in(given: str, printed: str) -> None:
    assert printed in str(parsed(given))


@pytest.mark.parametrize(
    ("label", "line"),
    [
        ("HINST-6", "%x = f32[4]{0} conditional(%c, %i, %i), branch_computations={%negated, %negated}"),
        ("HINST-6", "%x = f32[4]{0} conditional(%k, %i, %i), true_computation=%negated, false_computation=%negated"),
        ("HINST-6", "%x = f32[4]{0} call(%i)"),
        ("HINST-6", "%x = f32[4]{0} fusion(%i), calls=%negated"),
        ("HOP-30", "%x = (f32[4]{0}, token[]) recv(%t), channel_id=2"),
        ("MAP-6", "%x = f32[4]{0} map(%i, %i), dimensions={}, to_apply=%sum"),
    ],
    ids=[
        "HOP-20: branches of a pred",
        "HOP-20: two branches of an s32",
        "HOP-19: no to_apply",
        "HOP-40: no kind",
        "HOP-30: shape",
        "HOP-19: dimensions",
    ],
)
def test_lines_rejected(label: str, line: str) -> None:
    with rejects(label, "HOP-20"):
        parsed(line)


@rule("HASYNC-2", "HASYNC-6")
def test_the_short_form_runs() -> None:
    text = """HloModule m
    ENTRY e {
      i = f32[4] parameter(0)
      s = ((f32[4]), f32[4]) reverse-start(i), dimensions={0}
      ROOT d = f32[4] reverse-done(s)
    }"""
    assert np.array_equal(hk.evaluate(hk.parse(text), np.arange(4, dtype=np.float32)), [3, 2, 1, 0])


@rule("HASYNC-2")
def test_a_done_names_the_op_that_was_started() -> None:
    start = "%x = ((f32[4]{0}), f32[4]{0}) reverse-start(%i), dimensions={0}"
    parsed(start, "%y = f32[4]{0} reverse-done(%x)")
    with rejects("HASYNC-2"):
        parsed(start, "%y = f32[4]{0} negate-done(%x)")


REPEATED = """HloModule m
f { p = f32[4] parameter(0) ROOT n = f32[4] negate(p) }
g { p = f32[4] parameter(0) ROOT n = f32[4] negate(p) }
ENTRY e { x = f32[4] parameter(0)
 s = ((f32[4]), f32[4]) async-start(x), calls=f, async_execution_thread="a"
 u = ((f32[4]), f32[4]) async-update(s), calls=%s
 ROOT d = f32[4] async-done(u), calls=%s, async_execution_thread="%s" }"""


@rule("HASYNC-8")
def test_a_done_repeats_attributes_of_its_start() -> None:
    module = hk.parse(REPEATED % ("f", "f", "a"))
    assert "negate-done(%u)\n" in str(module)
    assert np.array_equal(hk.evaluate(module, np.ones(4, np.float32)), [-1] * 4)
    for wrong in (("f", "g", "a"), ("g", "f", "a"), ("f", "f", "main")):
        with rejects("HASYNC-8"):
            hk.parse(REPEATED % wrong)


@rule("HASYNC-2", "HASYNC-3")
def test_the_short_form_of_an_op_that_calls() -> None:
    lines = ("%s = ((f32[4]{0}), f32[4]{0}) fusion-start(%x), kind=kLoop, calls=%f", "ROOT %d = f32[4]{0} fusion-done(%s)")
    text = "HloModule m\nf { p = f32[4] parameter(0) ROOT n = f32[4] negate(p) }\nENTRY e { x = f32[4] parameter(0)\n"
    module = hk.parse(text + "\n".join(lines) + "}")
    assert all(line in str(module) for line in lines) and str(hk.parse(str(module))) == str(module)
    assert np.array_equal(hk.evaluate(module, np.ones(4, np.float32)), [-1] * 4)


@rule("TOKEN-4")
def test_after_all_of_arrays_in_text() -> None:
    text = "HloModule m\nENTRY e { x = f32[2] parameter(0)\n t = token[] after-all(x)\n ROOT y = f32[2] add-dependency(x, t) }"
    module, x = hk.parse(text), np.ones(2, np.float32)
    assert np.array_equal(hk.evaluate(module, x), x) and np.array_equal(hk.compile(module)(x), x)


@rule("HSHAPE-4")
@pytest.mark.parametrize(("levels", "elements"), [(21, "{0}, {0}"), (70, "{0}")], ids=["leaves", "nesting"])
def test_tuples_that_grow_without_end(levels: int, elements: str) -> None:
    lines = [f"%t{n + 1} = tuple({elements.format(f'%t{n}' if n else '%k')})" for n in range(levels)]
    parsed(*lines[:5])
    with rejects("HSHAPE-4", "HMOD-1"):
        parsed(*lines)


@rule("HOP-20", "HOP-28", "HOP-40")
def test_text_runs_as_it_reads() -> None:
    text = """HloModule m
    double { p = f32[] parameter(0) ROOT r = f32[] add(p, p) }
    square { p = f32[] parameter(0) ROOT r = f32[] multiply(p, p) }
    ENTRY e {
      k = s32[] parameter(0)
      t = token[] after-all()
      in = (f32[], token[]) infeed(t)
      x = f32[] get-tuple-element(in), index=0
      f = f32[] fusion(x), kind=kLoop, calls=double
      ROOT y = f32[] conditional(k, f, x), branch_computations={double, square}
    }"""
    module = hk.parse(text)
    assert hk.evaluate(module, 0, infeed=[3.0]) == 12
    assert hk.evaluate(module, 1, infeed=[3.0]) == 9
