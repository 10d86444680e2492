"""algsimp: small named rules, each with its law, indexed by the op class that they look at."""

from hlokit.passes.simplify import arithmetic as arithmetic
from hlokit.passes.simplify import shapes as shapes
from hlokit.passes.simplify.rules import Simplify as Simplify
