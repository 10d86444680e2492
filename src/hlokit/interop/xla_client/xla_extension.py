"""The names of jaxlib's `xla_extension` (`xla_client._xla`) as far as they concern programs."""

from hlokit.interop.xla_client import ifrt_programs as ifrt_programs
from hlokit.interop.xla_client import mlir as mlir
from hlokit.interop.xla_client import ops as ops
from hlokit.interop.xla_client.buffer import ArrayImpl as ArrayImpl
from hlokit.interop.xla_client.builder import XlaBuilder as XlaBuilder
from hlokit.interop.xla_client.builder import XlaOp as XlaOp
from hlokit.interop.xla_client.client import Client as Client
from hlokit.interop.xla_client.client import Device as Device
from hlokit.interop.xla_client.client import Memory as Memory
from hlokit.interop.xla_client.client import make_cpu_client as make_cpu_client
from hlokit.interop.xla_client.computation import HloComputation as HloComputation
from hlokit.interop.xla_client.computation import HloModule as HloModule
from hlokit.interop.xla_client.computation import HloPrintOptions as HloPrintOptions
from hlokit.interop.xla_client.computation import XlaComputation as XlaComputation
from hlokit.interop.xla_client.computation import hlo_module_cost_analysis as hlo_module_cost_analysis
from hlokit.interop.xla_client.computation import hlo_module_from_text as hlo_module_from_text
from hlokit.interop.xla_client.computation import hlo_module_to_dot_graph as hlo_module_to_dot_graph
from hlokit.interop.xla_client.custom_calls import custom_call_targets as custom_call_targets
from hlokit.interop.xla_client.custom_calls import register_custom_call_target as register_custom_call_target
from hlokit.interop.xla_client.dlpack import buffer_to_dlpack_managed_tensor as buffer_to_dlpack_managed_tensor
from hlokit.interop.xla_client.dlpack import dlpack_managed_tensor_to_buffer as dlpack_managed_tensor_to_buffer
from hlokit.interop.xla_client.enums import AutotuneCacheMode as AutotuneCacheMode
from hlokit.interop.xla_client.enums import FftType as FftType
from hlokit.interop.xla_client.enums import HostBufferSemantics as HostBufferSemantics
from hlokit.interop.xla_client.enums import OpSharding_ShardGroupType as OpSharding_ShardGroupType
from hlokit.interop.xla_client.enums import OpSharding_Type as OpSharding_Type
from hlokit.interop.xla_client.enums import Precision as Precision
from hlokit.interop.xla_client.enums import PrimitiveType as PrimitiveType
from hlokit.interop.xla_client.enums import ResultAccuracyMode as ResultAccuracyMode
from hlokit.interop.xla_client.errors import XlaRuntimeError as XlaRuntimeError
from hlokit.interop.xla_client.executable import ExecuteResults as ExecuteResults
from hlokit.interop.xla_client.executable import LoadedExecutable as LoadedExecutable
from hlokit.interop.xla_client.executable import ShardedToken as ShardedToken
from hlokit.interop.xla_client.executable import Token as Token
from hlokit.interop.xla_client.options import CompileOptions as CompileOptions
from hlokit.interop.xla_client.options import DebugOptions as DebugOptions
from hlokit.interop.xla_client.options import DeviceAssignment as DeviceAssignment
from hlokit.interop.xla_client.options import ExecutableBuildOptions as ExecutableBuildOptions
from hlokit.interop.xla_client.protos import FrontendAttributes as FrontendAttributes
from hlokit.interop.xla_client.shapes import Layout as Layout
from hlokit.interop.xla_client.shapes import PjRtLayout as PjRtLayout
from hlokit.interop.xla_client.shapes import ProgramShape as ProgramShape
from hlokit.interop.xla_client.shapes import Shape as Shape
from hlokit.interop.xla_client.shapes import ShapeIndex as ShapeIndex
from hlokit.interop.xla_client.sharding import OpSharding as OpSharding
from hlokit.interop.xla_client.sharding import SingleDeviceSharding as SingleDeviceSharding
from hlokit.interop.xla_client.traceback import Frame as Frame
from hlokit.interop.xla_client.traceback import Traceback as Traceback
from hlokit.types.literal import Literal as Literal

get_tfrt_cpu_client = make_cpu_client
PrecisionConfig_Precision = Precision
ResultAccuracy_Mode = ResultAccuracyMode
