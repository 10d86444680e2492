"""jaxlib 0.4.30's `jaxlib.xla_client`, as far as it concerns programs: building, reading, compiling, running.

Code written for it runs with its import changed:

    from hlokit.interop import xla_client as xc     # was: from jaxlib import xla_client as xc

docs/xla_client.md says what is covered. Programs run on hlokit; jaxlib is not used.
"""

import ml_dtypes as _types

from hlokit.interop.xla_client import ifrt_programs as ifrt_programs
from hlokit.interop.xla_client import ops as ops
from hlokit.interop.xla_client import xla_extension as xla_extension
from hlokit.interop.xla_client.buffer import ArrayImpl as ArrayImpl
from hlokit.interop.xla_client.builder import XlaBuilder as XlaBuilder
from hlokit.interop.xla_client.builder import XlaOp as XlaOp
from hlokit.interop.xla_client.client import Client as Client
from hlokit.interop.xla_client.client import Device as Device
from hlokit.interop.xla_client.client import Memory as Memory
from hlokit.interop.xla_client.client import execute_with_python_values as execute_with_python_values
from hlokit.interop.xla_client.client import (
    execute_with_python_values_replicated as execute_with_python_values_replicated,
)
from hlokit.interop.xla_client.client import make_cpu_client as make_cpu_client
from hlokit.interop.xla_client.computation import XlaComputation as XlaComputation
from hlokit.interop.xla_client.custom_calls import custom_call_targets as custom_call_targets
from hlokit.interop.xla_client.custom_calls import register_custom_call_handler as register_custom_call_handler
from hlokit.interop.xla_client.custom_calls import register_custom_call_target as register_custom_call_target
from hlokit.interop.xla_client.enums import DTYPE_TO_XLA_ELEMENT_TYPE as DTYPE_TO_XLA_ELEMENT_TYPE
from hlokit.interop.xla_client.enums import XLA_ELEMENT_TYPE_TO_DTYPE as XLA_ELEMENT_TYPE_TO_DTYPE
from hlokit.interop.xla_client.enums import AutotuneCacheMode as AutotuneCacheMode
from hlokit.interop.xla_client.enums import CustomCallTargetTraits as CustomCallTargetTraits
from hlokit.interop.xla_client.enums import FftType as FftType
from hlokit.interop.xla_client.enums import HostBufferSemantics as HostBufferSemantics
from hlokit.interop.xla_client.enums import PaddingType as PaddingType
from hlokit.interop.xla_client.enums import PrimitiveType as PrimitiveType
from hlokit.interop.xla_client.enums import ResultAccuracyMode as ResultAccuracyMode
from hlokit.interop.xla_client.enums import dtype_to_etype as dtype_to_etype
from hlokit.interop.xla_client.errors import XlaRuntimeError as XlaRuntimeError
from hlokit.interop.xla_client.executable import LoadedExecutable as LoadedExecutable
from hlokit.interop.xla_client.options import CompileOptions as CompileOptions
from hlokit.interop.xla_client.options import DeviceAssignment as DeviceAssignment
from hlokit.interop.xla_client.protos import ChannelHandle as ChannelHandle
from hlokit.interop.xla_client.protos import ConvolutionDimensionNumbers as ConvolutionDimensionNumbers
from hlokit.interop.xla_client.protos import CurrentSourceInfoMetadata as CurrentSourceInfoMetadata
from hlokit.interop.xla_client.protos import DotDimensionNumbers as DotDimensionNumbers
from hlokit.interop.xla_client.protos import GatherDimensionNumbers as GatherDimensionNumbers
from hlokit.interop.xla_client.protos import OpMetadata as OpMetadata
from hlokit.interop.xla_client.protos import PaddingConfig as PaddingConfig
from hlokit.interop.xla_client.protos import PaddingConfigDimension as PaddingConfigDimension
from hlokit.interop.xla_client.protos import PrecisionConfig as PrecisionConfig
from hlokit.interop.xla_client.protos import ReplicaGroup as ReplicaGroup
from hlokit.interop.xla_client.protos import ResultAccuracy as ResultAccuracy
from hlokit.interop.xla_client.protos import ScatterDimensionNumbers as ScatterDimensionNumbers
from hlokit.interop.xla_client.protos import make_convolution_dimension_numbers as make_convolution_dimension_numbers
from hlokit.interop.xla_client.protos import make_dot_dimension_numbers as make_dot_dimension_numbers
from hlokit.interop.xla_client.protos import make_padding_config as make_padding_config
from hlokit.interop.xla_client.protos import make_replica_groups as make_replica_groups
from hlokit.interop.xla_client.protos import window_padding_type_to_pad_values as window_padding_type_to_pad_values
from hlokit.interop.xla_client.shapes import Layout as Layout
from hlokit.interop.xla_client.shapes import PjRtLayout as PjRtLayout
from hlokit.interop.xla_client.shapes import ProgramShape as ProgramShape
from hlokit.interop.xla_client.shapes import Shape as Shape
from hlokit.interop.xla_client.shapes import ShapeIndex as ShapeIndex
from hlokit.interop.xla_client.shapes import shape_from_pyval as shape_from_pyval
from hlokit.interop.xla_client.sharding import OpSharding as OpSharding
from hlokit.interop.xla_client.sharding import SingleDeviceSharding as SingleDeviceSharding
from hlokit.interop.xla_client.traceback import Frame as Frame
from hlokit.interop.xla_client.traceback import Traceback as Traceback
from hlokit.interop.xla_client.traceback import tracebacks as tracebacks

_xla = xla_extension
bfloat16 = _types.bfloat16
float8_e4m3b11fnuz = _types.float8_e4m3b11fnuz
float8_e4m3fn = _types.float8_e4m3fn
float8_e4m3fnuz = _types.float8_e4m3fnuz
float8_e5m2 = _types.float8_e5m2
float8_e5m2fnuz = _types.float8_e5m2fnuz

mlir_api_version = 57
"""The number of jaxlib 0.4.30, as _version is."""
_version = 271
xla_platform_names = {"cpu": "Host"}
