"""All functions of the builder in one module, from which `hlokit` exports them."""

from hlokit.builder.collectives import *  # noqa: F403
from hlokit.builder.communication import *  # noqa: F403
from hlokit.builder.constants import *  # noqa: F403
from hlokit.builder.contraction import *  # noqa: F403
from hlokit.builder.control import *  # noqa: F403
from hlokit.builder.convolution import *  # noqa: F403
from hlokit.builder.custom_calls import *  # noqa: F403
from hlokit.builder.dynamic import *  # noqa: F403
from hlokit.builder.einsum import *  # noqa: F403
from hlokit.builder.elementwise import *  # noqa: F403
from hlokit.builder.factorizations import *  # noqa: F403
from hlokit.builder.indexing import *  # noqa: F403
from hlokit.builder.linalg import *  # noqa: F403
from hlokit.builder.loops import *  # noqa: F403
from hlokit.builder.math import *  # noqa: F403
from hlokit.builder.matrix import *  # noqa: F403
from hlokit.builder.movement import *  # noqa: F403
from hlokit.builder.prng import *  # noqa: F403
from hlokit.builder.reduction import *  # noqa: F403
from hlokit.builder.slicing import *  # noqa: F403
