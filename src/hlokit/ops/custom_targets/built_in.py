"""The targets that come with hlokit: each file here registers those of one topic, and only this list names it."""

from hlokit.ops.custom_targets import buffers as buffers
from hlokit.ops.custom_targets import checks as checks
from hlokit.ops.custom_targets import convolution as convolution
from hlokit.ops.custom_targets import factorizations as factorizations
from hlokit.ops.custom_targets import lapack as lapack
from hlokit.ops.custom_targets import partitioning as partitioning
from hlokit.ops.custom_targets import selection as selection
from hlokit.ops.custom_targets import sparse as sparse
from hlokit.ops.custom_targets import tridiagonal as tridiagonal
