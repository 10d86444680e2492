"""dynamic-padder: bounded dynamic dimensions become static ones with their sizes beside them."""

from hlokit.passes.dynamic_padder.padder import DynamicPadder as DynamicPadder
from hlokit.passes.dynamic_padder.padder import padded as padded
from hlokit.passes.dynamic_padder.signature import DynamicSignature as DynamicSignature
