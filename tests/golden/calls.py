"""How each operation of a golden program is called in hlokit: one line per operation.

A line is the function, then what it takes: a bare word is the golden argument passed by position, `word=` one
passed by keyword if the program gives it; the bare word `builder` is the builder itself. A function starting with
`b.` is a method of the builder, others belong to the package. Where an operation has two signatures it has two
lines; the one whose bare words are all given is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Cbrt Ceil Clz Conj Copy Cos Cosh Digamma Erf ErfInv
    Erfc Exp Expm1 Floor Imag IsFinite Lgamma Log Log1p Logistic Neg Not OptimizationBarrier PopulationCount Real
    Reciprocal Round RoundNearestEven Rsqrt Sign Sin Sinh Sqrt Square Tan Tanh
"""
_BINARY = """
    Add And Atan2 Complex Div Eq EqTotalOrder Ge GeTotalOrder Gt GtTotalOrder Le LeTotalOrder Lt LtTotalOrder Max Min
    Mul Ne NeTotalOrder Or Pow Rem ShiftLeft ShiftRightArithmetic ShiftRightLogical Sub Xor
"""
_TABLE = """
    AfterAll        b.after_all tokens
    AllGather       all_gather operand all_gather_dimension shard_count replica_groups=
    AllReduce       all_reduce operand computation replica_groups=
    AllToAll        all_to_all operand split_dimension concat_dimension split_count replica_groups=
    ApproxTopK          approx_top_k operands init_values top_k reduction_dim comparator recall_target= \
        aggregate_to_topk=
    ApproxTopKFallback  approx_top_k_fallback operands init_values top_k reduction_dim comparator \
        recall_target= aggregate_to_topk=
    BatchNormGrad       batch_norm_grad operand scale batch_mean batch_var grad_output epsilon feature_index
    BatchNormInference  batch_norm_inference operand scale offset mean variance epsilon feature_index
    BatchNormTraining   batch_norm_training operand scale offset epsilon feature_index
    BitcastConvertType  bitcast_convert_type operand new_element_type
    Broadcast       broadcast operand sizes
    BroadcastInDim  broadcast_in_dim operand shape broadcast_dimensions
    Call            call builder computation operands
    Cholesky        cholesky a lower
    Clamp           clamp min operand max
    Collapse        collapse operand dimensions
    CollectivePermute   collective_permute operand source_target_pairs
    ConcatInDim     concat_in_dim operands dimension
    Conditional     conditional predicate true_operand true_computation false_operand false_computation
    Conditional     conditional branch_index branch_computations branch_operands
    Constant        b.constant literal
    ConvGeneralDilated  conv_general_dilated lhs rhs window_strides padding lhs_dilation rhs_dilation \
        dimension_numbers feature_group_count= batch_group_count= precision_config= preferred_element_type= \
        window_reversal=
    ConvertElementType  convert_element_type operand new_element_type
    CreateToken     b.create_token
    CrossReplicaSum cross_replica_sum operand replica_groups=
    CustomCall      custom_call builder call_target_name operands shape opaque= has_side_effect=
    Dot             dot lhs rhs precision_config= preferred_element_type=
    DotGeneral      dot_general lhs rhs dimension_numbers precision_config= preferred_element_type=
    DynamicReshape  dynamic_reshape operand dim_sizes new_size_bounds dims_are_dynamic
    DynamicSlice    dynamic_slice operand start_indices slice_sizes
    DynamicUpdateSlice  dynamic_update_slice operand update start_indices
    Eigh            eigh a lower= max_iter= epsilon= sort_eigenvalues=
    ErfHlo          erf arg
    Fft             fft operand fft_type fft_length
    Gather          gather a start_indices dimension_numbers slice_sizes indices_are_sorted=
    GetDimensionSize    get_dimension_size operand dimension
    GetTupleElement get_tuple_element tuple_data index
    Igamma          igamma a x
    IgammaGradA     igamma_grad_a a x
    Igammac         igammac a x
    InfeedWithToken infeed_with_token token shape config=
    Iota            b.iota shape iota_dimension
    Iota            b.iota type size=
    LU              lu operand
    Map             map operands computation dimensions
    NextAfter       next_after from to
    OutfeedWithToken    outfeed_with_token operand token shape_with_layout outfeed_config
    Pad             pad operand padding_value padding_config
    ProductOfElementaryHouseholderReflectors    product_of_elementary_householder_reflectors a taus
    QR              qr operand full_matrices
    QrDecomposition qr_decomposition operand
    RandomGammaGrad random_gamma_grad a x
    Reduce          reduce operands init_values computation dimensions_to_reduce
    ReducePrecision reduce_precision operand exponent_bits mantissa_bits
    ReduceScatter   reduce_scatter operand computation scatter_dimension shard_count replica_groups=
    ReduceWindowWithGeneralPadding  reduce_window_with_general_padding operand init_value computation \
        window_dimensions window_strides base_dilations window_dilations padding
    ReduceWindowWithGeneralPadding  reduce_window_with_general_padding operands init_values computation \
        window_dimensions window_strides base_dilations window_dilations padding
    RegularizedIncompleteBeta   regularized_incomplete_beta a b x
    RemoveDynamicDimension  remove_dynamic_dimension operand dimension
    ReplicaId       b.replica_id
    Reshape         reshape operand new_sizes dimensions=
    Rev             rev operand dimensions
    RngBitGenerator rng_bit_generator algorithm initial_state shape
    RngNormal       rng_normal mu sigma shape
    RngUniform      rng_uniform a b shape
    SVD             svd a max_iter= epsilon=
    Scatter         scatter input scatter_indices updates update_computation dimension_numbers \
        indices_are_sorted= unique_indices=
    Scatter         scatter inputs scatter_indices updates update_computation dimension_numbers \
        indices_are_sorted= unique_indices=
    Select          select pred on_true on_false
    SelectAndScatterWithGeneralPadding  select_and_scatter_with_general_padding operand select \
        window_dimensions window_strides padding source init_value scatter
    SetDimensionSize    set_dimension_size operand val dimension
    Slice           slice operand start_indices limit_indices strides
    SliceInDim      slice_in_dim operand start_index limit_index stride dimno
    Sort            sort operands comparator= dimension= is_stable=
    TanHlo          tan arg
    TopK            top_k input k
    Transpose       transpose operand permutation
    TriangularSolve triangular_solve a b left_side lower unit_diagonal transpose_a
    Tuple           tuple_ builder elements
    While           while_ condition body init
    Zeta            zeta x q
"""
_PYTHON_NAMES = {"And": "and_", "Or": "or_", "Not": "not_", "IsFinite": "is_finite", "ErfInv": "erf_inv"}


@dataclass(frozen=True, slots=True)
class Call:
    """One signature: its positional arguments and those passed by keyword."""

    function: str
    positional: tuple[str, ...]
    keyword: tuple[str, ...]

    @property
    def arguments(self) -> frozenset[str]:
        return frozenset(self.positional + self.keyword)

    def fits(self, given: Iterable[str]) -> bool:
        """True if all required arguments are given and nothing is given that the call does not take."""
        names = frozenset(given) | {"builder"}
        return names.issuperset(self.positional) and names <= self.arguments | {"builder"}


def _call(line: str) -> Call:
    function, *words = line.split()
    return Call(
        function,
        tuple(word for word in words if "=" not in word),
        tuple(word.removesuffix("=") for word in words if word.endswith("=")),
    )


def snake_case(name: str) -> str:
    """PopulationCount -> population_count; Log1p -> log1p, BesselI0e -> bessel_i0e."""
    spaced = "".join(f"_{letter}" if letter.isupper() else letter for letter in name)
    return _PYTHON_NAMES.get(name, spaced.lstrip("_").lower())


def _rows() -> dict[str, tuple[Call, ...]]:
    rows: dict[str, tuple[Call, ...]] = {}
    for name in _UNARY.split():
        rows[name] = (_call(f"{snake_case(name)} arg"),)
    for name in _BINARY.split():
        rows[name] = (_call(f"{snake_case(name)} lhs rhs broadcast_dimensions="),)
    for line in _TABLE.strip().splitlines():
        name, call = line.split(maxsplit=1)
        rows[name] = (*rows.get(name, ()), _call(call))
    return rows


CALLS: dict[str, tuple[Call, ...]] = _rows()
