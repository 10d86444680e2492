"""algsimp: small named rules, each with its identity, indexed by the op class to which they apply."""

from hlokit.passes.simplify import arithmetic as arithmetic
from hlokit.passes.simplify import broadcasts as broadcasts
from hlokit.passes.simplify import conversions as conversions
from hlokit.passes.simplify import powers as powers
from hlokit.passes.simplify import products as products
from hlokit.passes.simplify import reductions as reductions
from hlokit.passes.simplify import scatters as scatters
from hlokit.passes.simplify import shapes as shapes
from hlokit.passes.simplify import slices as slices
from hlokit.passes.simplify.rules import FastSimplify as FastSimplify
from hlokit.passes.simplify.rules import Simplify as Simplify
