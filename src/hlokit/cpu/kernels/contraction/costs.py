"""Costs of machines: the table of parameters on which the plans of contractions depend.

Times and speeds are those of one core, where nothing else is said of a Sapphire Rapids or a Zen 4 of 3 GHz; sizes fit
caches of 32 KB and 1 MB. They decide between ways and sizes alone: results depend on them by the order of sums at most.
"""

from __future__ import annotations

# -- threads

CHUNKS = 16
"""Chunks of a phase, at most."""
CHUNK_WORK = 8_000_000
"""Multiplications and additions of a product that are worth a chunk: some 50 us."""
LARGE_WORK = 1 << 32
"""Operations of a product from which twice as many chunks cost next to nothing: below it packing is felt."""
STREAMED_BYTES = 1 << 19
"""That are worth a chunk where they are read or written once: some 25 us."""
CONVOLUTION_CHUNK, AMX_CONVOLUTION_CHUNK = 1 << 21, 1 << 22
"""Products of a convolution that are worth a chunk, by vectors and by AMX."""
WEIGHTS_CHUNK = 1 << 16
"""Weights that are worth a chunk when they are laid out."""
SCALAR_CHUNK = 100_000
"""Products that are worth a chunk where they are made one by one."""
AMX_CHUNK_NS = 60_000
"""Work of a product by AMX that is worth a chunk."""

# -- time to compile

FEW_PRODUCTS, AMX_FEW = 4096, 1 << 21
"""Products of a convolution for which tiles, and tiles of AMX, are not worth the time to compile them."""
AMX_LEAST_NS = 80_000
"""Time of a product by vectors for which AMX is not worth the time to compile it."""
LONG_TILE = 1 << 16
"""Multiplications of a tile from which the loops round it may be slow: 3000 cycles."""
LONG_PANEL = 256
"""Steps of the inner axis from which the loops round packing a panel may be slow."""

# -- caches

PANEL_COLUMN_BYTES = 2048
"""Bytes of one column in a packed panel: a tile's rows and columns then share L1 and half of L2."""
BLOCK_BYTES = 1 << 19
"""Packed columns of a chunk, in L2."""
SUMS_BYTES, AMX_SUMS_BYTES = 1 << 19, 1 << 18
"""Sums that wait on the stack for the rest of the inner axis. With what is packed a thread needs some 1.2 MB of it."""
MOST_ROWS, MOST_COLUMNS = 1024, 256
"""Rows and columns of a product's chunk, at most."""
AMX_LHS_BYTES = 3 << 18
"""Bytes of lhs, packed, in L2."""
LARGE_RESULT, SHORT_PANEL = 1 << 21, 1 << 14
"""Bytes of a convolution's result, at least, and of a panel of weights, at most, for which tiles take one panel after
the other: of larger panels one stays in the first cache, smaller results lie in caches."""
PATCH_BYTES, MOST_PATCH_BYTES = 1 << 18, 1 << 20
"""Input that a convolution's chunk works on: with a panel of weights it is to fit L2; and what may lie on the stack."""
AMX_PATCH_BYTES = 7 << 17
"""Lines and sums of a convolution's chunk by AMX, at most, which lie on the stack and should stay in L2."""
AMX_WORKING_BYTES = 1 << 20
"""Bytes of L2 that lines, a pair of packed panels and its sums may take."""
KEPT_WEIGHTS, KEPT_WEIGHTS_OF = 512, {"znver5": 4000}
"""Bytes of a row of weights up to which a part of it is read where it lies; by LLVM's name of the CPU where that is
another. Those of longer rows fall into few sets."""
KEPT_TILES = 4
"""Tiles up to which longer rows are read so, too: to pack them takes as long as to read them three times."""
KEPT_ROWS, KEPT_ROWS_OF = (512, 4), {"znver5": (10_000, 1 << 20)}
"""Bytes of a row of a product's rhs, and rows of tiles that read all of its columns, up to which it is read where it
lies: for more packing pays. By LLVM's name of the CPU where they are others."""
KEPT_SHARE = 0.5
"""Cost of reading such rows again, as a share of that of packing them."""
SETS_BYTES = 2048
"""Rows at multiples of so many bytes fall into few sets of the first cache."""

# -- memory

STREAMS = 8
"""Rows that are read at once: memory serves so many twice as fast as one, and more no faster."""
STREAMS_TOGETHER = {"znver5": 1}
"""By LLVM's name of the CPU: rows that are read at once where they lie one after the other; elsewhere STREAMS."""
LONG_ROW = 1 << 17
"""Bytes of a part of a row, at least, where rows are read one at a time."""
AHEAD_TOGETHER, MOST_AHEAD = 3 << 12, 1 << 15
"""Bytes to prefetch ahead where such rows are read, at least and at most: a block of rows ahead or several."""
AHEAD_ALONG = 256
"""Bytes to prefetch ahead along rows of which several are read at once, and multiplied by several rows."""
LONG_RUN = 1 << 15
"""Bytes of a row that are read from end to end: shorter runs are served slower, by 20 % at a quarter."""
PREFETCHED_STEPS = 16
"""Steps of a tile in which it prefetches a line or a few of each row that a later tile reads: as many rows at most."""
ROWS_BYTES = 1 << 19
"""Bytes of a chunk's lhs for which its tiles may take one panel of rhs after the other: half of L2."""
PREFETCHED_BYTES = 1 << 18
"""Bytes of an operand from which it is prefetched: smaller ones lie in the second-level cache."""
FEW_ROWS = 4
"""Rows of a product that reads its other operand once, as it is: memory holds it up, not arithmetic."""
STREAMED_ROWS, MOST_STREAMED_ROWS = 8, 16
"""Rows whose sums lie in registers at once where the other operand is read once by rows, and rows of such a product."""
MOST_NEAR_ROWS, NEAR_BYTES = 12, {True: 1 << 22, False: 1 << 20}
"""Rows of a product, and bytes of its other operand (by whether there are 32 registers), up to which that is read by
tiles again and again, whose sums are in registers."""
PAGE_BYTES = 4096
"""Rows of an operand at multiples of so many bytes fall into one set of the first cache."""
FEW_FEATURES = 2
"""Lanes for each output feature of a convolution from which vectors lie along its input features."""
LEAST_ALONG = 16
"""Vectors along the inner axis of a product of more rows than few, whose sums are in vectors along that axis."""
LEAST_STREAMED = 32
"""Steps of the inner axis of such a product."""
STREAMED_SUMS = 1 << 18
"""Bytes of sums that wait in the second-level cache while it reads."""
STREAMED_STEP = 1 << 14
"""Bytes of rows that lie together, in the first-level cache."""
SPLIT_STEPS = 16
"""Steps of the inner axis for each row of sums that a thread makes of its own: they cost less than an eighth then."""
LOW_ROWS = 16
"""Rows or columns of a product that, as a rule, is made without packing."""
ACROSS_TOGETHER = 4
"""Rows of tiles whose lhs is packed at once where memory has its rows across: lines hold several tiles' elements."""
TOGETHER_BYTES = 1 << 18
"""Bytes of lhs, packed, that stay in L2 while panels of rhs come from farther away."""
SHARED_TILES = 4
"""Rows of tiles at least that a chunk has where rhs is packed for all of them: it reads all of rhs."""
PACKED_ELEMENT = 20
"""Operations in the time of which an element is packed."""
SHARED_BYTES = 1 << 24
"""Bytes of such an rhs at most: all chunks read it from the third-level cache."""
SHARED_PACKING = 2
"""Times that packing an element takes where it is written and read back from the third-level cache."""
SHARED_GAIN = 1 / 40
"""Share of a product's time that packing for all chunks is to save."""
PACKING_SHARE = 1 / 40
"""1 / rows + 1 / columns of a chunk at which packing, some 20 operations an element, takes half as long as products."""

# -- AMX and vectors; tuples by the number of parts of bf16x3 splitting

AMX_SPEED = 8
"""Speed of AMX for bf16 and bytes, as a multiple of that of vectors."""
AMX_PACK_NS = (0.1, 0.2, 0.4)
"""An element, from the third-level cache."""
AMX_PRODUCT_NS = (1 / 2000, 4 / 1900, 6 / 1900)
"""A multiplication or an addition. Tiles alone take 6 / 2400; more while the core's other thread is at work."""
AMX_TILE_NS = 250
"""A run of a tile beside its products."""
FUSED_NS, FUSED_PACK_NS = 1 / 155, 0.25
"""The same by vectors: a multiplication or an addition of f32, and an element of lhs or rhs."""
AMX_GAIN = 1.1
"""Speed that AMX must promise, as a multiple of that of vectors."""
VECTOR_CYCLES = 0.75 / 26
"""For each product of a convolution, and three quarters thereof."""
LARGE_WINDOWS = 1.25
"""Factor by which vectors take longer where windows are larger than the result, as in gradients of kernels."""
