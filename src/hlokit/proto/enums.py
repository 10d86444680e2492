"""Values of the enumerations in HloModuleProto: index = number, None where the number has no text form."""

from __future__ import annotations

from hlokit.errors import ParseError

ENUMS: dict[str, tuple[str | None, ...]] = {
    "fft_type": ("FFT", "IFFT", "RFFT", "IRFFT"),
    "distribution": (None, "rng_uniform", "rng_normal"),
    "rng_algorithm": ("rng_default", "rng_three_fry", "rng_philox"),
    "triangular_solve_options.transpose_a": ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "padding_type": ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"),
    "custom_call_schedule": ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"),
    "custom_call_api_version": (
        "API_VERSION_UNSPECIFIED",
        "API_VERSION_ORIGINAL",
        "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED",
        "API_VERSION_TYPED_FFI",
    ),
    "precision_config.operand_precision": ("default", "high", "highest", "packed_nibble"),
    "precision_config.algorithm": (
        None,
        "dot_any_f8_any_f8_f32",
        "dot_any_f8_any_f8_f32_fast_accum",
        "dot_f16_f16_f16",
        "dot_f16_f16_f32",
        "dot_bf16_bf16_bf16",
        "dot_bf16_bf16_f32",
        "dot_bf16_bf16_f32_x3",
        "dot_bf16_bf16_f32_x6",
        "dot_tf32_tf32_f32",
        "dot_tf32_tf32_f32_x3",
        "dot_f32_f32_f32",
        "dot_f64_f64_f64",
        "dot_bf16_bf16_f32_x9",
        "dot_bf16_bf16_fp8x3",
        "dot_bf16_bf16_fp8x4",
    ),
    "result_accuracy.mode": ("default", "highest"),
    "conv_kind": ("unset", "fprop", "dgrad", "wgrad"),
    "is_associative": (None, "true", "false"),
    "alias kind": ("may-alias", "may-alias", "must-alias"),
    "sharding reduction": ("sum", "max", "min"),
    "sharding type": ("replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced"),
    "shard group": ("shard_as", "shard_like"),
}


def name_of(enum: str, number: int) -> str | None:
    """The text form of a value. ParseError for a number that the enumeration does not have."""
    values = ENUMS[enum]
    if not 0 <= number < len(values):
        raise ParseError(f"proto: {enum} has no value {number}")
    return values[number]


def number_of(enum: str, name: str | None) -> int:
    """The number of a value; the last one where two numbers share a name."""
    values = ENUMS[enum]
    return max(i for i, value in enumerate(values) if value == name)
