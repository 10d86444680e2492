"""The ops: one class per opcode. Importing this package fills the registry."""

from hlokit.ops import (
    asynchronous as asynchronous,
)
from hlokit.ops import (
    batch_norm as batch_norm,
)
from hlokit.ops import (
    collectives as collectives,
)
from hlokit.ops import (
    communication as communication,
)
from hlokit.ops import (
    comparison as comparison,
)
from hlokit.ops import (
    contraction as contraction,
)
from hlokit.ops import (
    control_flow as control_flow,
)
from hlokit.ops import (
    conversion as conversion,
)
from hlokit.ops import (
    convolution as convolution,
)
from hlokit.ops import (
    custom as custom,
)
from hlokit.ops import (
    dynamic as dynamic,
)
from hlokit.ops import (
    elementwise as elementwise,
)
from hlokit.ops import (
    exchanges as exchanges,
)
from hlokit.ops import (
    fourier as fourier,
)
from hlokit.ops import (
    gather as gather,
)
from hlokit.ops import (
    linalg as linalg,
)
from hlokit.ops import (
    movement as movement,
)
from hlokit.ops import (
    ragged_dot as ragged_dot,
)
from hlokit.ops import (
    random as random,
)
from hlokit.ops import (
    reduction as reduction,
)
from hlokit.ops import (
    reshaping as reshaping,
)
from hlokit.ops import (
    scan as scan,
)
from hlokit.ops import (
    scatter as scatter,
)
from hlokit.ops import (
    slicing as slicing,
)
from hlokit.ops import (
    sorting as sorting,
)
from hlokit.ops import (
    structure as structure,
)
from hlokit.ops import (
    transcendental as transcendental,
)
from hlokit.ops import (
    windows as windows,
)
