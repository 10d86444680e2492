"""hk.partition: programs in parts against the same programs whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.passes.partitioner import Network, partition
from hlokit.passes.partitioner.placement import Grid, Placement
from hlokit.passes.partitioner.plan import Planner
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.sharding import NamedSharding, Sharding
from tests.partition.campaign import checked
from tests.partition.programs import MESHES, compared

MESH = "mesh['a'=2,'b'=2]"


def parted(text: str, mesh: Any = None, **given: Any) -> Any:
    """The partitioned module, which agrees with the whole program, in the interpreter and in machine code."""
    module = hk.parse(text.replace("MESH", MESH))
    found = hk.partition(module, mesh, **given)
    numbers = np.random.default_rng(0)
    arguments = [
        numbers.integers(-9, 10, p.shape.dimensions).astype(p.shape.dtype.numpy) for p in module.entry.parameters
    ]
    whole = hk.evaluate(module, *arguments, partitions=1)
    for run in (lambda *parts: hk.evaluate(found.module, *parts), hk.compile(found.module)):
        joined = found.join(run(*found.split(*arguments)))
        pairs = zip(joined, whole, strict=True) if isinstance(whole, tuple) else [(joined, whole)]
        for got, want in pairs:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
            assert got.dtype == want.dtype
    return found


def kinds(found: Any) -> list[str]:
    return [reason.kind for reason in found.reasons]


ADD = "add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"
LESS = "less { p = s32[] parameter(0) q = s32[] parameter(1) ROOT r = pred[] compare(p, q), direction=LT }\n"

DOT = """HloModule m
ENTRY e {
  x = f32[8,6] parameter(0), sharding={MESH, [LHS]}
  w = f32[6,4] parameter(1), sharding={MESH, [RHS]}
  ROOT d = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={MESH, [RESULT]}
}"""


@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "expected"),
    [
        ("{'a'}, {}", "{}, {'b'}", "{'a'}, {'b'}", []),
        ("{}, {'b'}", "{'b'}, {}", "{}, {}", ["all-reduce"]),
        ("{}, {'b'}", "{'b'}, {}", "{'b'}, {}", ["reduce-scatter"]),
        ("{'a'}, {}", "{'a'}, {}", "{'a'}, {}", ["all-gather"]),  # FSDP: the weights are gathered, not the activations
        ("{}, {}", "{}, {}", "{'a'}, {'b'}", []),
        ("{'a'}, {'b'}", "{'b'}, {}", "{'a'}, {}", ["all-reduce"]),
    ],
)
def test_products(lhs: str, rhs: str, result: str, expected: list[str]) -> None:
    text = DOT.replace("LHS", lhs).replace("RHS", rhs).replace("RESULT", result)
    assert kinds(parted(text)) == expected


TRAINING = """HloModule step
ENTRY e {
  x = f32[1024,256] parameter(0), sharding={DATA}
  w = f32[256,512] parameter(1), sharding={WEIGHTS}
  y = f32[1024,512] parameter(2), sharding={DATA}
  p = f32[1024,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[1024,512] subtract(p, y)
  g = f32[256,512] dot(x, e), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  u = f32[256,512] subtract(w, g)
  ROOT t = (f32[256,512]) tuple(u), sharding={{WEIGHTS}}
}"""


@pytest.mark.parametrize(
    ("data", "weights", "expected"),
    [
        ("devices=[4,1]<=[4]", "replicated", {"all-reduce"}),  # data parallel
        ("devices=[4,1]<=[4]", "devices=[4,1]<=[4]", {"all-gather", "reduce-scatter"}),  # FSDP
        ("replicated", "devices=[1,4]<=[4]", set()),  # by features: nothing is summed
    ],
)
def test_training_steps(data: str, weights: str, expected: set[str]) -> None:
    """Weights are gathered before they are used, their gradients are scattered where they are added."""
    text = TRAINING.replace("DATA", data).replace("WEIGHTS", weights)
    found = hk.partition(hk.parse(text), "d=4")
    assert set(kinds(found)) == expected
    assert all(reason.axes == (Axis("d"),) for reason in found.reasons)


SHARDY = """
module @jit_f attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%arg0: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>},
      %arg1: tensor<6x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"b"}]>})
      -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"b"}]>}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
        : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"a"}, {"b"}]> : tensor<8x4xf32>
    %2 = stablehlo.tanh %1 : tensor<8x4xf32>
    return %2 : tensor<8x4xf32>
  }
}"""


def test_shardy() -> None:
    """A program as JAX writes it: shardings of arguments and results, and a constraint between."""
    found = parted(SHARDY)
    assert kinds(found) == ["all-gather"] and found.reasons[0].opcode in ("dot", "tanh")
    assert [p.shape for p in found.module.entry.parameters] == [hk.f32[4, 6], hk.f32[6, 2]]


def test_sizes_that_do_not_divide() -> None:
    """PART-4: padding is no part of a sum, nor of an element that is kept."""
    text = f"""HloModule m
{ADD}ENTRY e {{
  x = f32[7,100001] parameter(0), sharding={{MESH, [{{'b'}}, {{'a'}}]}}
  o = f32[] constant(1.5)
  s = f32[7] reduce(x, o), dimensions={{1}}, to_apply=add
  y = f32[7,100001] multiply(x, x)
  ROOT t = (f32[7], f32[7,100001]) tuple(s, y)
}}"""
    found = parted(text)
    assert kinds(found) == ["all-reduce"]
    assert found.module.entry.parameters[0].shape is hk.f32[4, 50001]
    assert [str(s) for s in found.out_shardings] == [f"{MESH}, [{{'b'}}]", f"{MESH}, [{{'b'}}, {{'a'}}]"]


FIRST = """first { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  greater = pred[] compare(a, b), direction=GT
  unordered = pred[] compare(a, a), direction=NE
  takes = pred[] or(greater, unordered)
  equal = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(equal, before)
  index = pred[] or(takes, tie)
  v = f32[] select(takes, a, b)
  k = s32[] select(index, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k) }
"""


@pytest.mark.parametrize(
    ("sharding", "start", "expected"),
    [
        ("{'a'}, {}", "-inf", []),
        ("{}, {'b'}", "-inf", ["all-gather"] * 2),
        ("{'a'}, {'b'}", "-inf", ["all-gather"] * 2),
        ("{}, {'a','b'}", "-inf", ["all-gather"] * 2),  # 10 elements are not 4 equal parts: operands are whole
    ],
)
def test_choices(sharding: str, start: str, expected: list[str]) -> None:
    """Devices choose among their elements, then among what all have chosen; of equal elements the first."""
    text = f"""HloModule m
{FIRST}
ENTRY e {{
  x = f32[8,10] parameter(0), sharding={{MESH, [{sharding}]}}
  i = s32[8,10] iota(), iota_dimension=1
  low = f32[] constant({start})
  zero = s32[] constant(0)
  ROOT r = (f32[8], s32[8]) reduce(x, i, low, zero), dimensions={{1}}, to_apply=first
}}"""
    found = parted(text)
    assert kinds(found) == expected
    chosen = [reason for reason in found.reasons if "has selected among its elements" in reason.because]
    assert bool(chosen) == ("{'b'}" in sharding)


def test_folds_that_do_not_choose() -> None:
    """A fold of two arrays that computes new numbers is not divided."""
    text = f"""HloModule m
{FIRST}
ENTRY e {{
  x = f32[8,12] parameter(0), sharding={{MESH, [{{}}, {{'b'}}]}}
  i = s32[8,12] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  zero = s32[] constant(3)
  ROOT r = (f32[8], s32[8]) reduce(x, i, low, zero), dimensions={{1}}, to_apply=first
}}"""
    assert "has selected" in parted(text).reasons[0].because
    found = parted(text.replace("select(takes, a, b)", "add(a, b)"))
    assert "which reduce needs whole" in found.reasons[0].because


def test_shardings_of_calls() -> None:
    """The sharding of a call's result, and of each array of one, counts when the function is in its place."""
    text = """HloModule m
f { a = f32[8] parameter(0) ROOT r = f32[8] negate(a) }
g { a = f32[8] parameter(0) b = f32[8] negate(a) ROOT r = (f32[8], f32[8]) tuple(a, b) }
ENTRY e {
  x = f32[8] parameter(0), sharding={MESH, [{'a'}]}
  ROOT r = f32[8] call(x), to_apply=f, sharding={MESH, [{}]}
}"""
    found = parted(text)
    assert kinds(found) == ["all-gather"] and found.module.entry.root.shape is hk.f32[8]
    pair = text.replace("f32[8] call(x), to_apply=f, sharding={MESH, [{}]}",
                        "(f32[8], f32[8]) call(x), to_apply=g, sharding={{MESH, [{}]}, {MESH, [{'b'}]}}")  # fmt: skip
    found = parted(pair)
    assert [str(s) for s in found.out_shardings] == [f"{MESH}, [{{}}]", f"{MESH}, [{{'b'}}]"]
    found = parted(text.replace(", sharding={MESH, [{}]}", ""), out_shardings=["{replicated}"])
    assert found.module.entry.root.shape is hk.f32[8]


LOOP = """HloModule m
body { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)  n = s32[] subtract(i, one)  y = f32[8] tanh(x)  ROOT t = (s32[], f32[8]) tuple(n, y) }
more { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  zero = s32[] constant(0)
  ROOT go = pred[] compare(i, zero), direction=GT }
ENTRY e {
  x = f32[8] parameter(0), sharding={MESH, [{'a'}]}
  three = s32[] constant(3)
  start = (s32[], f32[8]) tuple(three, x)
  loop = (s32[], f32[8]) while(start), condition=more, body=body
  ROOT r = f32[8] get-tuple-element(loop), index=1
}"""


def test_shardings_of_elements() -> None:
    """The sharding of an element of a loop's state, stated or given, is the result's; the state stays divided."""
    whole = f"{MESH}, [{{}}]"
    for found in (
        parted(LOOP, out_shardings=["{replicated}"]),
        parted(LOOP.replace("index=1\n}", "index=1, sharding={MESH, [{}]}\n}")),
        parted(LOOP.replace("ROOT r = f32[8] get-tuple-element(loop), index=1\n}",
               "g = f32[8] get-tuple-element(loop), index=1\n ROOT r = (f32[8], f32[8]) tuple(g, x)\n}"),
               out_shardings=["{replicated}", None]),
    ):  # fmt: skip
        assert str(found.out_shardings[0]) == whole and kinds(found) == ["all-gather"]


def test_whole_values() -> None:
    """PART-5: what cannot run on parts is gathered, and said by name."""
    text = """HloModule m
ENTRY e {
  x = f32[8,6] parameter(0), sharding={MESH, [{'a'}, {'b'}]}
  ROOT r = f32[8,6] cholesky(x), lower=true
}""".replace("8,6", "8,8")
    found = parted(text)
    assert "all-gather" in kinds(found)
    assert "which cholesky needs whole (whole)" in found.reasons[0].because
    found = parted(text.replace("cholesky(x), lower=true", "opt-barrier(x)").replace("'b'", ""))
    assert not found.reasons


BATCHED = """HloModule m
ENTRY e {
  x = f32[8,3,2]{1,2,0} parameter(0), sharding={MESH, [{'a'}, {}, {'b'}]}
  scale = f32[4] parameter(1), sharding={MESH, [{'a'}]}
  c = (f32[8,3,2]{1,2,0}, f32[8]{0}) custom-call(x, scale), custom_call_target="partition_batched",
    operand_layout_constraints={f32[8,3,2]{1,2,0}, f32[4]{0}}, frontend_attributes={num_batch_dims="COUNT"}
  y = f32[8,3,2]{1,2,0} get-tuple-element(c), index=0
  n = f32[8] get-tuple-element(c), index=1
  ROOT r = (f32[8,3,2]{1,2,0}, f32[8]) tuple(y, n), sharding={{MESH, [{'a'}, {}, {}]}, {MESH, [{'a'}]}}
}"""


def test_batch_dimensions_of_custom_calls() -> None:
    """PART-7: num_batch_dims promises that a call for some elements of the first dimensions gives theirs."""
    sizes: list[int] = []

    def batched(x: Any, scale: Any) -> Any:
        sizes.append(len(x))
        return x * scale.sum(), x.sum((1, 2))

    hk.register_custom_call("partition_batched", batched)
    found = parted(BATCHED.replace("COUNT", "1"))
    assert set(sizes) == {4, 8}  # in parts, and whole for comparison
    call = next(i for i in found.module.entry.instructions if i.opcode == "custom-call")
    assert str(call.shape) == "(f32[4,3,2]{1,2,0}, f32[4]{0})"
    assert str(call.op.operand_layout_constraints[0]) == "f32[4,3,2]{1,2,0}"
    assert kinds(found) == ["all-gather", "all-gather"]  # of a matrix, and of what has no batch dimension
    for count in ("0", "x", "2"):  # not all results have two dimensions
        sizes.clear()
        parted(BATCHED.replace("COUNT", count))
        assert set(sizes) == {8}


@pytest.mark.parametrize(
    "op",
    [
        "s32[2,4,6] reshape(x)", "s32[6,8] transpose(x), dimensions={1,0}", "s32[8,3,6] broadcast(x), dimensions={0,2}",
        "s32[8,6] sort(x), dimensions={1}, to_apply=less", "s32[48] reshape(x)", "s32[8,2] slice(x), slice={[0:8],[1:3]}",
        "s32[8,6] iota(), iota_dimension=0", "u8[8,6,4] bitcast-convert(x)", "s32[8,6,1] bitcast(x)", "s8[8,6] convert(x)",
        "s32[8,2] dynamic-slice(x, k, k), dynamic_slice_sizes={8,2}",
        "s32[8,3] gather(x, i), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={8,1}",
        "s32[8,16] concatenate(x, x, y), dimensions={1}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("axes", ["{'a'}, {}", "{'b','a'}, {}", "{}, {'a'}", "{'a'}, {'b'}"])
def test_families(op: str, axes: str) -> None:
    """Movement and integers: the same bits, however the operand and the result lie."""
    rank = op.split("[")[1].split("]")[0].count(",") + 1
    for result in ("", ", sharding={MESH, [{'a'}" + ", {}" * (rank - 1) + "]}"):
        parted(f"""HloModule m
{LESS}ENTRY e {{
  x = s32[8,6] parameter(0), sharding={{MESH, [{axes}]}}
  y = s32[8,4] parameter(1), sharding={{MESH, [{axes}]}}
  i = s32[3,1] parameter(2)
  k = s32[] parameter(3)
  r = {op}{result}
  ROOT t = ({op.split(" ")[0]}, s32[8,6]) tuple(r, x)
}}""")


RANGES = [
    ("f32[7,3] dynamic-slice(x, s, s), dynamic_slice_sizes={7,3}", "all-reduce"),
    ("f32[2,3] dynamic-slice(x, s, s), dynamic_slice_sizes={2,3}", "all-reduce"),
    ("f32[7,10] dynamic-update-slice(x, u, s, s)", ""),
    ("f32[5,10] gather(x, k), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,"
     " slice_sizes={1,10}", "all-reduce"),
    ("f32[7,10] scatter(x, k, v), update_window_dims={1}, inserted_window_dims={0},"
     " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add", ""),
]  # fmt: skip


@pytest.mark.parametrize(("op", "expected"), RANGES, ids=lambda text: text.split("(")[0])
@pytest.mark.parametrize("axes", ["{'a'}, {}", "{}, {'b'}", "{'a'}, {'b'}", "{'b','a'}, {}"])
def test_ranges(op: str, expected: str, axes: str) -> None:
    """Each device looks up, or writes, what lies in its part; places outside are moved inside, or dropped, as whole."""
    is_update = not expected
    module = hk.parse(f"""HloModule m
{ADD}ENTRY e {{
  x = f32[7,10] parameter(0), sharding={{{MESH}, [{axes}]}}
  s = s32[] parameter(1)
  u = f32[7,3] parameter(2)
  k = s32[5,1] parameter(3)
  v = f32[5,10] parameter(4)
  ROOT r = {op}, sharding={{{MESH}, [{axes if is_update else "{}, {}"}]}}
}}""")
    found = partition(module, network=Network(bandwidth=1e6, latency=0.0))
    seen = {reason.kind for reason in found.reasons}
    assert not seen if is_update else "whole" not in seen
    numbers = np.random.default_rng(0)
    run = hk.compile(found.module)
    for start in (-3, 0, 2, 4, 6, 20):
        shapes = [p.shape for p in module.entry.parameters]
        arguments = [numbers.integers(-9, 10, shape.dimensions).astype(shape.dtype.numpy) for shape in shapes]
        arguments[1] = np.int32(start)
        whole = hk.evaluate(module, *arguments, partitions=1)
        parts = found.split(*arguments)
        assert found.join(hk.evaluate(found.module, *parts)).tobytes() == whole.tobytes()
        assert found.join(run(*parts)).tobytes() == whole.tobytes()


def test_lookup_is_a_sum() -> None:
    """A long table that is divided is not gathered: what devices find is added up."""
    module = hk.parse("""HloModule m
ENTRY e {
  x = f32[100000,8] parameter(0), sharding={devices=[4,1]<=[4]}
  k = s32[16,1] parameter(1)
  ROOT r = f32[16,8] gather(x, k), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,8}
}""")
    found = hk.partition(module)
    assert kinds(found) == ["all-reduce"] and "each device reads" in found.reasons[0].because


def test_loops() -> None:
    """The state lies between steps as it does before the first."""
    text = """HloModule m
body {
  s = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8,4] add(x, x)
  ROOT t = (s32[], f32[8,4]) tuple(j, y)
}
condition {
  s = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[8,4] parameter(0), sharding={MESH, [{'a'}, {'b'}]}
  z = s32[] constant(0)
  t = (s32[], f32[8,4]) tuple(z, x)
  ROOT w = (s32[], f32[8,4]) while(t), condition=condition, body=body
}"""
    found = parted(text)
    assert not found.reasons and found.module.entry.root.shape.elements[1] is hk.f32[4, 2]


def test_branches() -> None:
    text = """HloModule m
double { x = f32[8,4] parameter(0) ROOT y = f32[8,4] add(x, x) }
same { x = f32[8,4] parameter(0) ROOT y = f32[8,4] copy(x) }
ENTRY e {
  x = f32[8,4] parameter(0), sharding={MESH, [{'a'}, {'b'}]}
  c = s32[] parameter(1)
  ROOT w = f32[8,4] conditional(c, x, x), branch_computations={double, same}
}"""
    assert not parted(text).reasons


def test_unreduced() -> None:
    """A value enters as terms, which are summed, and leaves as terms, which sum up to it."""
    text = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0), sharding={MESH, [{}, {}], unreduced={'a'}}
  ROOT y = f32[8,4] multiply(x, x), sharding={MESH, [{}, {}], unreduced={'b'}}
}"""
    found = parted(text)
    assert kinds(found) == ["all-reduce"]
    parts = found.split(np.ones((8, 4), np.float32))
    assert sum(float(part[0][0, 0]) for part in parts) == 2  # one for each place along b


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    """Programs of tests/partition/campaign.py on meshes of 2 to 8 devices, sizes that do not divide among them."""
    problem = checked(seed)
    assert not problem or problem.startswith("unsupported"), problem


def test_conversions() -> None:
    """PART-2: tiles and iota forms are axes and parts of axes, and come back as the same tiles."""
    grid = Grid(Mesh((("a", 2), ("b", 4))))
    texts = ["{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[8,1]<=[8]}",
             "{devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}", "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={unreduced}}",
             "{devices=[2,4]0,1,2,3,4,5,6,7}"]  # fmt: skip
    for text in texts:
        sharding = hk.parse(
            f"HloModule m\nENTRY e {{ ROOT x = f32[8,8] parameter(0), sharding={text} }}"
        ).entry.root.extra
        assert sharding is not None and sharding.sharding is not None
        placement = grid.placement(sharding.sharding, 2)
        assert placement is not None
        named = grid.sharding(placement)
        assert isinstance(named, NamedSharding)
        assert named.tiled().device_ids() == sharding.sharding.device_ids()
        assert grid.placement(Sharding("named", named=named), 2) == placement
    assert grid.axes_of(grid.parts_of([Axis("b", 2, 2)])) == (Axis("b", 2, 2),)


def test_plans() -> None:
    """Two steps where these take less than gathering all; a permutation where the parts are the same."""
    grid = Grid(Mesh((("a", 4), ("b", 2))))
    planner = Planner(grid)
    a, b = grid.parts_of([Axis("a")]), grid.parts_of([Axis("b")])
    size = (4096, 4096)

    def plan(source: tuple[Any, ...], target: tuple[Any, ...]) -> list[str]:
        return [step.kind for step in planner.plan(size, 4, Placement(source), Placement(target))]

    assert plan((a, ()), ((), a)) == ["all-to-all"]
    assert plan((a, b), (a, ())) == ["all-gather"]
    assert plan(((), ()), (a, b)) == ["slice", "slice"]
    assert plan(((*a, *b), ()), ((*b, *a), ())) == ["collective-permute"]
    assert "all-gather" not in plan((a, b), (b, a))
    assert planner.plan(size, 4, Placement((a, b)), Placement((a, b))) == ()


def test_plans_of_many_parts_end() -> None:
    """Arrays of many dimensions on meshes of many parts: the search gives up, and the way is still one."""
    grid = Grid(Mesh((("a", 4096),)))
    planner = Planner(grid)
    sizes = (4096,) * 6
    forward = Placement(tuple((2 * i, 2 * i + 1) for i in range(6)))
    backward = Placement(tuple((11 - 2 * i, 10 - 2 * i) for i in range(6)))
    here = forward
    for step in planner.plan(sizes, 4, forward, backward):
        assert step.before == here
        here = step.after
    assert here == backward


RIGHT = "HloModule m, num_partitions=4\nENTRY e { x = f32[8,4] parameter(0), sharding={SHARDING} ROOT r = f32[8,4] negate(x) }"


@pytest.mark.parametrize(
    ("label", "mesh", "sharding"),
    [
        ("PART-1", "a=2,b", "replicated"),
        ("PART-1", "a=8", "replicated"),
        ("PART-1", "a=99999999", "replicated"),
        ("PART-1", "a=4", "devices=[2,1]<=[2]"),
        ("PART-1", "a=4", "maximal device=9"),
        ("PART-2", "a=2,b=2", "devices=[4,1]0,1,3,2"),
        ("PART-3", "a=4", "devices=[4]<=[4]"),
        ("HMESH-1", "a=2,a=2", "replicated"),
        ("HMESH-3", "a=2,b=2", f"{MESH}, [{{'c'}}, {{}}]"),
        ("HMESH-4", "a=2,b=2", f"{MESH}, [{{'a'}}, {{'a'}}]"),
    ],
)
def test_refused(label: str, mesh: str, sharding: str) -> None:
    with pytest.raises(hk.HlokitError, match=label):
        hk.partition(hk.parse(RIGHT.replace("SHARDING", sharding)), mesh)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ROOT r = u32[] partition-id()", "partition-id"),
        ("x = f32[4] parameter(0) ROOT r = f32[4] all-to-all(x), dimensions={0}, channel_id=1", "all-to-all"),
        (
            "t = token[] after-all() i = (f32[4], token[]) infeed(t) ROOT r = f32[4] get-tuple-element(i), index=0",
            "infeed",
        ),
        ("x = f32[<=4] parameter(0) ROOT r = f32[<=4] negate(x)", "dynamic"),
        ("x = f32[4] parameter(0), sharding={manual} ROOT r = f32[4] negate(x)", "manual"),
    ],
)
def test_unsupported(text: str, found: str) -> None:
    with pytest.raises(hk.UnsupportedError, match=found):
        hk.partition(hk.parse(f"HloModule m, num_partitions=2\nENTRY e {{ {text} }}"))


def test_manual_axes_outside_of_a_region() -> None:
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[8,4] parameter(0)
  y = f32[8,4] negate(x)SAID
  p = f32[2,4] custom-call(y), custom_call_target="SPMDFullToShardShape", sharding={manual}
  q = f32[2,4] abs(p), sharding={manual}
  z = f32[8,4] custom-call(q), custom_call_target="SPMDShardToFullShape", sharding={devices=[4,1]<=[4]}
  ROOT r = f32[8,4] abs(z)
}"""
    hk.partition(hk.parse(text.replace("SAID", ", sharding={devices=[4,1]<=[4]}")))
    with pytest.raises(hk.ShapeError, match=r"sharding of y: found \{manual\}.*PART-6"):
        hk.partition(hk.parse(text.replace("SAID", ", sharding={manual}")))


def test_arguments() -> None:
    module = hk.parse("HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT r = f32[4] negate(x) }")
    with pytest.raises(hk.ArgumentError, match="mesh="):
        hk.partition(module)
    with pytest.raises(hk.ArgumentError, match="mesh=5"):
        hk.partition(module, 5)  # type: ignore[arg-type]
    with pytest.raises(hk.ArgumentError, match="the sharding 7"):
        hk.partition(module, "a=2", in_shardings=[7])  # type: ignore[list-item]
    with pytest.raises(hk.ParseError):
        hk.partition(module, "a=2", in_shardings=["{devices=}"])
    with pytest.raises(hk.ArgumentError, match="in_shardings"):
        hk.partition(module, "a=2", in_shardings=[])
    found = hk.partition(module, "a=2", in_shardings=["{devices=[2]<=[2]}"])
    with pytest.raises(hk.ArgumentError, match="2 arguments, expected 1"):
        found.split(1, 2)
    with pytest.raises(hk.ArgumentError, match=r"\(3,\)"):
        found.split(np.ones(3, np.float32))
    with pytest.raises(hk.ArgumentError, match="2"):
        found.join([np.ones(2, np.float32)])


@pytest.mark.parametrize("name", ["layernorm_grad", "take_along_axis_grad", "gru_scan_grad"])
def test_programs_of_jax(name: str) -> None:
    """Their recorded outputs; `python -m tests.partition.programs` runs all, on 2, 4 and 8 devices."""
    assert sum(compared(name, MESHES[2]).values())


def test_donated_arguments() -> None:
    """A device's part of a donated argument is overwritten with its part of the result; the caller's array stays."""
    text = """HloModule step, input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}, may-alias) }, buffer_donor={ (2, {}) }
ENTRY e {
  w = f32[8,1024] parameter(0), sharding={devices=[4,1]<=[4]}
  x = f32[8,1024] parameter(1), sharding={devices=[4,1]<=[4]}
  y = f32[8,1024] parameter(2), sharding={devices=[4,1]<=[4]}
  s = f32[8,1024] subtract(w, y)
  t = f32[8,1024] add(x, y)
  ROOT r = (f32[8,1024], f32[8,1024]) tuple(s, t), sharding={{devices=[4,1]<=[4]}, {replicated}}
}"""
    found = hk.partition(hk.parse(text))
    assert [(a.output_index, a.parameter) for a in found.module.input_output_alias] == [((0,), 0)]
    assert found.module.buffer_donor == [(2, ()), (1, ())]  # the result of 1 is whole, and its part is not
    w, x, y = (np.full((8, 1024), n, np.float32) for n in (5, 3, 1))
    executable = hk.compile(found.module)
    parts = found.split(w, x, y)
    results = executable(*parts)
    assert all(np.shares_memory(result[0], given[0]) for result, given in zip(results, parts, strict=True))
    made = found.join(results)
    assert np.all(made[0] == 4) and np.all(made[1] == 4) and np.all(w == 5) and np.all(x == 3) and np.all(y == 1)


@pytest.mark.parametrize(
    "op",
    [
        "ROOT r = (s32[4], s32[4]) reduce-window(x, y, z, z), window={size=1 pad=0_-1}, to_apply=both",
        "ROOT r = s32[4] select-and-scatter(s, x, z), window={size=1 pad=0_1}, select=less, scatter=add",
    ],
)
def test_parts_of_the_first_elements(op: str) -> None:
    """The places that 4 elements have in parts are not those of 5: a device's part of one is not in its part of the other."""
    both = """both {
  a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  m = s32[] maximum(a, c) n = s32[] minimum(b, d) ROOT t = (s32[], s32[]) tuple(m, n)
}
"""
    parted(
        "HloModule m\n"
        + ADD.replace("f32", "s32")
        + LESS
        + both
        + f"""ENTRY e {{
  x = s32[5] parameter(0), sharding={{MESH, [{{'a','b'}}]}}
  y = s32[5] parameter(1), sharding={{MESH, [{{'a','b'}}]}}
  s = s32[4] parameter(2), sharding={{MESH, [{{'a','b'}}]}}
  z = s32[] constant(0)
  {op}
}}"""
    )


@pytest.mark.parametrize(("op", "start"), [("add", "0"), ("maximum", "-inf"), ("multiply", "1")])
def test_unreduced_folds(op: str, start: str) -> None:
    """Devices keep terms of a sum; what else they fold does not add up, and is folded first."""
    found = parted(f"""HloModule m
f {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] {op}(p, q) }}
ENTRY e {{
  x = f32[8,4] parameter(0), sharding={{MESH, [{{'a'}}, {{}}]}}
  z = f32[] constant({start})
  r = f32[4] reduce(x, z), dimensions={{0}}, to_apply=f, sharding={{MESH, [{{}}], unreduced={{'a'}}}}
  ROOT y = f32[4] copy(r), sharding={{MESH, [{{}}]}}
}}""")
    assert kinds(found) == ["all-reduce"] * (1 if op == "add" else 2)


def test_devices_in_another_order() -> None:
    """Lists of devices in one order are along the axes of a mesh of that order."""
    found = parted("""HloModule m
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]2,0,3,1}
  y = f32[8,4] parameter(1), sharding={devices=[2,2]2,0,3,1}
  s = f32[8,4] add(x, y), sharding={devices=[2,1,2]2,0,3,1 last_tile_dim_replicate}
  ROOT r = f32[8,4] reverse(s), dimensions={0}, sharding={devices=[1,4]2,0,3,1}
}""")
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    parts = found.split(x, x)
    assert [float(parts[device][0][0, 0]) for device in (2, 0, 3, 1)] == [0, 8, 16, 24]
    with pytest.raises(hk.ShapeError, match="an order of devices that they do not give is lost"):
        parted("""HloModule m
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]2,0,3,1}
  ROOT r = f32[8,4] copy(x), sharding={devices=[4,1]0,1,2,3}
}""")
