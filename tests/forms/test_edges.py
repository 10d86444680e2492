"""Forms on shapes at the edge: rank 0, sizes 0 and 1, negative padding, dilation, unordered dimensions."""

from __future__ import annotations

import pytest

from tests.forms.programs import check, inputs, program

ROWS = """
f32[]             broadcast            f32[]                    dimensions={}
f32[0,3]          broadcast            f32[3]                   dimensions={1}
f32[3,2,4]        broadcast            f32[4,3]                 dimensions={2,0}
f32[1,1]          broadcast            f32[1]                   dimensions={0}
s4[5,2]           broadcast            s4[5]                    dimensions={0}
f32[]             transpose            f32[]                    dimensions={}
f32[4,2,3]        transpose            f32[2,3,4]               dimensions={2,0,1}
f32[0,3]          transpose            f32[3,0]                 dimensions={1,0}
pred[3,1,2]       transpose            pred[1,2,3]              dimensions={2,0,1}
f32[]             reverse              f32[]                    dimensions={}
f32[1,4,0]        reverse              f32[1,4,0]               dimensions={0,2}
c64[5,3]          reverse              c64[5,3]                 dimensions={1,0}
c64[5,3]          shuffle              c64[5,3]                 dimensions={1,0},mode=rotate,shifts={-1,7}
f32[1,4,0]        shuffle              f32[1,4,0]               dimensions={0,2},mode=rotate,shifts={1,1}
f32[0]            concatenate          f32[0]                   dimensions={0}
f32[5]            concatenate          f32[0],f32[2],f32[0],f32[3]      dimensions={0}
f32[2,0]          concatenate          f32[2,0],f32[2,0]        dimensions={1}
s8[2,6,1]         concatenate          s8[2,1,1],s8[2,2,1],s8[2,3,1]    dimensions={1}
f32[7]            pad                  f32[0],f32[]             padding=3_4
f32[0]            pad                  f32[3],f32[]             padding=-1_-2
f32[3]            pad                  f32[5],f32[]             padding=-1_-1
f32[10]           pad                  f32[3],f32[]             padding=-1_4_2
f32[9]            pad                  f32[4],f32[]             padding=2_-3_2
f32[0]            pad                  f32[1],f32[]             padding=-1_0_3
f32[3,8]          pad                  f32[2,3],f32[]           padding=-1_1_1x2_-1_2
f32[1]            slice                f32[5]                   slice={[3:4]}
f32[0]            slice                f32[5]                   slice={[2:2]}
f32[2,3]          slice                f32[5,9]                 slice={[1:5:3],[0:9:4]}
f32[]             slice                f32[]                    slice={}
s32[4]            iota                 -                        iota_dimension=0
bf16[3,300]       iota                 -                        iota_dimension=1
u8[300]           iota                 -                        iota_dimension=0
s4[20]            iota                 -                        iota_dimension=0
c64[2,3]          iota                 -                        iota_dimension=0
f32[0,2]          iota                 -                        iota_dimension=1
f32[]             reshape              f32[1,1]
f32[1,1]          reshape              f32[]
f32[6]            reshape              f32[2,3]
f32[2,3]          reshape              f32[6]
f32[3,2]          reshape              f32[2,3]
f32[4,3,1,2]      reshape              f32[2,6,2]
f32[2,1,3,5]      reshape              f32[1,6,5,1]
f32[0,7]          reshape              f32[3,0]
f32[15,4]         reshape              f32[10,6]
f32[4,2]          dynamic-slice        f32[9,5],s32[],s32[]     dynamic_slice_sizes={4,2}
f32[0,5]          dynamic-slice        f32[9,5],u8[],u8[]       dynamic_slice_sizes={0,5}
f32[]             dynamic-slice        f32[]                    dynamic_slice_sizes={}
f32[9,5]          dynamic-update-slice f32[9,5],f32[4,2],s32[],s32[]
f32[9,5]          dynamic-update-slice f32[9,5],f32[0,5],s64[],s64[]
f32[9,5]          dynamic-update-slice f32[9,5],f32[9,5],s8[],s8[]
f32[]             dynamic-update-slice f32[],f32[]
f32[4]            bitcast              f32[2,2]{0,1}
f32[2,3]{0,1}     bitcast              f32[3,2]
f32[2,3]{0,1}     bitcast              f32[2,3]
f32[3,2,4]{0,2,1} bitcast              f32[4,6]{0,1}
u32[2,3]          bitcast              f32[3,2]
u8[2,12]          bitcast              f32[3,2]
f32[6]            bitcast              u16[3,4]{0,1}
u8[3,4]           bitcast-convert      f32[3]
f32[3]            bitcast-convert      u8[3,4]
s32[2,3]          bitcast-convert      f32[2,3]
f16[0,4]          bitcast-convert      f64[0]
u4[3,4]           bitcast-convert      s16[3]
s16[3]            bitcast-convert      u4[3,4]
bf16[]            bitcast-convert      s16[]
f64[2]            bitcast-convert      f32[2,2]
f32[2,4]          copy                 f32[2,4]
f32[2,4]          select               pred[],f32[2,4],f32[2,4]
f8e4m3fn[7]       select               pred[7],f8e4m3fn[7],f8e4m3fn[7]
f32[2,4]          clamp                f32[],f32[2,4],f32[2,4]
f32[3]            map                  f32[3],f32[3]            dimensions={0},to_apply=weighted
f32[]             reduce               f32[],f32[]              dimensions={},to_apply=weighted
f32[4]            reduce               f32[0,4],f32[]           dimensions={0},to_apply=weighted
f32[0]            reduce               f32[3,0],f32[]           dimensions={0},to_apply=weighted
f32[3]            reduce               f32[2,3,4],f32[]         dimensions={2,0},to_apply=weighted
f32[2,4]          reduce               f32[2,3,4],f32[]         dimensions={1},to_apply=weighted
bf16[5]           reduce               bf16[5,40],bf16[]        dimensions={1},to_apply=add_bf16
(f32[3],s32[3])   reduce               f32[3,5],s32[3,5],f32[],s32[]    dimensions={1},to_apply=argmax
f32[]             reduce-window        f32[],f32[]              to_apply=weighted
f32[4]            reduce-window        f32[6],f32[]             window={size=3},to_apply=weighted
f32[6]            reduce-window        f32[6],f32[]             window={size=6,pad=5_0},to_apply=weighted
f32[6]            reduce-window        f32[6],f32[]             window={size=2,stride=2,pad=-1_2,lhs_dilate=2},to_apply=weighted
f32[7]            reduce-window        f32[5],f32[]             window={size=3,pad=1_1,lhs_dilate=2,rhs_dilate=2},to_apply=weighted
f32[0]            reduce-window        f32[2],f32[]             window={size=3},to_apply=weighted
f32[5,3]          reduce-window        f32[0,7],f32[]           window={size=2x3,stride=1x2,pad=3_3x0_0},to_apply=weighted
f32[4,2]          reduce-window        f32[4,5],f32[]           window={size=1x3,stride=1x2},to_apply=weighted
(f32[4],s32[4])   reduce-window        f32[6],s32[6],f32[],s32[]        window={size=3},to_apply=argmax
f32[6]            select-and-scatter   f32[6],f32[4],f32[]      window={size=3},select=greater,scatter=weighted
f32[7]            select-and-scatter   f32[7],f32[3],f32[]      window={size=3,stride=2},select=less,scatter=weighted
f32[5]            select-and-scatter   f32[5],f32[4],f32[]      window={size=2,stride=3,pad=3_4},select=greater,scatter=add
f32[6]            select-and-scatter   f32[6],f32[2],f32[]      window={size=2,stride=2,pad=-1_-1},select=greater,scatter=add
f32[4,6]          select-and-scatter   f32[4,6],f32[2,3],f32[]  window={size=3x2,stride=2x2,pad=1_0x0_0},select=greater,scatter=weighted
f32[2]            select-and-scatter   f32[2],f32[0],f32[]      window={size=3},select=greater,scatter=add
f32[0]            select-and-scatter   f32[0],f32[2],f32[]      window={size=2,pad=1_2},select=greater,scatter=add
(f32[2,3,4],f32[3],f32[3]) batch-norm-training f32[2,3,4],f32[3],f32[3]     epsilon=0.001,feature_index=1
(bf16[40],bf16[40],bf16[40]) batch-norm-training bf16[40],bf16[40],bf16[40] epsilon=0.001,feature_index=0
(f32[0,3],f32[3],f32[3]) batch-norm-training f32[0,3],f32[3],f32[3]         epsilon=0.001,feature_index=1
(f64[3,0],f64[0],f64[0]) batch-norm-training f64[3,0],f64[0],f64[0]         epsilon=0.001,feature_index=1
f16[2,3,4]        batch-norm-inference f16[2,3,4],f16[3],f16[3],f16[3],f16[3]       epsilon=0.1,feature_index=1
(f32[5,2],f32[2],f32[2]) batch-norm-grad f32[5,2],f32[2],f32[2],f32[2],f32[5,2]     epsilon=9,feature_index=1
(f32[0,2],f32[2],f32[2]) batch-norm-grad f32[0,2],f32[2],f32[2],f32[2],f32[0,2]     epsilon=9,feature_index=1
f32[2,4,5]        dot                  f32[2,4,3],f32[2,3,5]    lhs_batch_dims={0},lhs_contracting_dims={2},rhs_batch_dims={0},rhs_contracting_dims={1}
f32[1,2,3]        convolution          f32[1,2,5],f32[2,2,3]    window={size=3},dim_labels=bf0_oi0->bf0
c64[3,8]          fft                  c64[3,8]                 fft_type=FFT,fft_length={8}
f32[3,3]          cholesky             f32[3,3]                 lower=true
f32[3,2]          triangular-solve     f32[3,3],f32[3,2]        left_side=true,lower=true,transpose_a=NO_TRANSPOSE
f32[3,7]          sort                 f32[3,7]                 dimensions={1},to_apply=less
(f32[3,2],s32[3,2]) topk               f32[3,7]                 k=2,largest=true
f32[5]            rng                  f32[],f32[]              distribution=rng_normal
(u64[2],u32[5])   rng-bit-generator    u64[2]                   algorithm=rng_three_fry
u64[1]            rng-get-and-update-state -                    delta=3
f32[4,5]          ragged-dot           f32[4,3],f32[2,3,5],s32[2]       lhs_contracting_dims={1},rhs_contracting_dims={1},lhs_ragged_dims={0},rhs_group_dims={0}
f32[4,5]          scaled-dot           f32[4,6],f32[6,5],f32[4,3],f32[2,5]      lhs_contracting_dims={1},rhs_contracting_dims={0}
(f32[4,3],f32[3]) scan                 f32[4,3],f32[3]          dimensions={0},is_associative=false,num_carries=1,to_apply=step
(f32[3,4],f32[3]) scan                 f32[3,4],f32[3]          dimensions={1},is_associative=false,is_reverse=true,num_carries=1,to_apply=step
(f32[0,3],f32[3]) scan                 f32[0,3],f32[3]          dimensions={0},is_associative=false,num_carries=1,to_apply=step
(s32[5],s32[])    scan                 s32[]                    dimensions={0},is_associative=false,num_carries=1,to_apply=count
"""
_GATHERED = "offset_dims={1},collapsed_slice_dims={0},start_index_map={0},index_vector_dim=1,slice_sizes={1,3}"
_SCATTERED = "update_window_dims={1},inserted_window_dims={0},scatter_dims_to_operand_dims={0},index_vector_dim=1"
MORE = [
    ("f32[7,3]", "gather", "f32[5,3],s32[7]", _GATHERED),
    ("f32[0,3]", "gather", "f32[5,3],s32[0]", _GATHERED),
    ("f32[7,3]", "gather", "f32[1,3],u64[7,1]", _GATHERED),
    (
        "f32[2,4,3]",
        "gather",
        "f32[6,4,5],s8[2,4]",
        "offset_dims={0,2},collapsed_slice_dims={1},start_index_map={2,1},index_vector_dim=0,slice_sizes={2,1,3}",
    ),
    (
        "f32[3,2]",
        "gather",
        "f32[3,8],s32[3,1]",
        "offset_dims={1},collapsed_slice_dims={},start_index_map={1},operand_batching_dims={0},"
        "start_indices_batching_dims={0},index_vector_dim=1,slice_sizes={1,2}",
    ),
    ("f32[5,3]", "scatter", "f32[5,3],s32[9],f32[9,3]", f"{_SCATTERED},to_apply=weighted"),
    ("f32[5,3]", "scatter", "f32[5,3],s32[0],f32[0,3]", f"{_SCATTERED},to_apply=weighted"),
    ("f32[0,3]", "scatter", "f32[0,3],s32[4],f32[4,3]", f"{_SCATTERED},to_apply=weighted"),
    ("f32[5,3]", "scatter", "f32[5,3],u64[9,1],f32[9,2]", f"{_SCATTERED},to_apply=add"),
    (
        "(f32[4,6],s32[4,6])",
        "scatter",
        "f32[4,6],s32[4,6],s32[2,5],f32[2,5,3],s32[2,5,3]",
        "update_window_dims={0,2},inserted_window_dims={},scatter_dims_to_operand_dims={1,0},index_vector_dim=0,"
        "to_apply=argmax",
    ),
    (
        "f32[3,8]",
        "scatter",
        "f32[3,8],s32[3,1],f32[3,2]",
        "update_window_dims={1},inserted_window_dims={},scatter_dims_to_operand_dims={1},input_batching_dims={0},"
        "scatter_indices_batching_dims={0},index_vector_dim=1,to_apply=weighted",
    ),
]


def rows() -> list[tuple[str, str, str, str]]:
    table = [(*line.split(maxsplit=3), "")[:4] for line in ROWS.strip().splitlines()]
    return [*table, *MORE]  # type: ignore[list-item]


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[1]} {row[0]} of {row[2]} {row[3][:60]}")
def test_edge(row: tuple[str, str, str, str]) -> None:
    result, opcode, operands, attributes = row
    shapes = "" if operands == "-" else operands.replace("],", "] ").replace("},", "} ")
    module = program(result, opcode, shapes, attributes)
    for seed in range(3):
        assert opcode in check(module, *inputs(module, seed))
