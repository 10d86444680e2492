"""What a custom-call's target name stands for: the registry, and the targets that XLA itself would expand.

A file here registers the targets of one theme; nothing else needs to know of it but this list.
"""

from hlokit.ops.custom_targets import checks as checks
from hlokit.ops.custom_targets import convolution as convolution
from hlokit.ops.custom_targets import factorizations as factorizations
from hlokit.ops.custom_targets import lapack as lapack
from hlokit.ops.custom_targets import partitioning as partitioning
from hlokit.ops.custom_targets import selection as selection
from hlokit.ops.custom_targets import sparse as sparse
from hlokit.ops.custom_targets import tridiagonal as tridiagonal
