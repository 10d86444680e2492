"""Costs of machines: the parameters of loops and of kernels other than contractions, tuned by measurement.

Contractions have a table of their own (kernels/contraction/costs.py). The numbers are those of a Sapphire Rapids or a
Zen 4 of 3 GHz with caches of 32 KB, 1 MB and some MB a core. They decide between ways, sizes of chunks and what is
stored: results depend on them by the order of sums at most.
"""

from __future__ import annotations

# -- caches and memory

LINE_BYTES = 64
"""Bytes of a cache line, which streaming stores write whole."""
SECOND_CACHE_BYTES = 1 << 19
"""Bytes that stay in the second-level cache: half of it, since what else is being done needs the rest."""
STREAM_BYTES = 32 << 20
"""Bytes that a kernel touches at least where it stores past the caches: what it writes would be gone before it is read.

In a loop, which reads again what the pass before has written, twice as many."""
STREAMED_ARRAY_BYTES = 1 << 20
"""Bytes of an array from which on it is stored past the caches, where that helps."""
COPY_CHUNK_BYTES = 256 << 10
"""Bytes of a chunk: copies of twice as many are shared among threads."""

TILE_ROW_BYTES = 128
"""Bytes of each row that a transposition reads before it goes on to the next rows. As many rows of its result are
written at a time; where their distance is a power of two, few of them stay in a near cache."""
SHARED_NS, CHUNK_NS = 8000.0, 4000.0
"""Estimated work of a kernel from which on threads share it, and that is worth a chunk."""
DEINTERLEAVED = 8
"""Elements from one lane to the next up to which whole vectors are read and shuffled; beyond, lanes are gathered."""

# -- arithmetic

FLOAT_CYCLES = 4
"""Cycles from a sum or product of floats to what needs it."""
OPERATIONS_A_CYCLE, CYCLES_IN_FLIGHT = 3, 150
"""Operations that a core does in a cycle, and cycles of operations that it has in flight, where none waits for
another."""

# -- asking for memory before it is read

PREFETCHED_ARRAY = 4 << 20
"""Bytes of an array from which on its rows are asked for before they are read."""
PREFETCHED_ROWS = (256, 256 << 10)
"""Bytes of rows that are asked for: of shorter ones there are several in a page, longer ones would be gone again."""
PREFETCHED_NEAR = 16 << 10
"""Bytes of a row that the nearest cache has room for, besides what is being done."""
PREFETCH_AHEAD = 2048
"""Bytes to ask ahead, at least."""
PREFETCHED_ALONG = 1 << 20
"""Bytes of an array from which on it is asked for along its rows: a smaller one may lie in a near cache."""

# -- sorts

SORT_CHUNK, COMPARISON_SORT_CHUNK, HEAP_CHUNK = 4096, 2048, 1 << 15
"""Elements of short lines that make a chunk, in sorts by keys, by a comparator, and
where heaps keep the largest of a line."""
LONG_LINE = 1 << 15
"""Elements from which a line is worth several chunks."""
MERGE_BLOCKS = 16
"""Blocks that merges split a long line into."""
RADIX_DIGITS = {False: 8, True: 11}
"""Bits of a digit at most; by whether lines are so long that passing over them costs most."""
RADIX_WIDE = 1 << 13
"""Elements of such lines."""
RADIX_SEGMENTS, RADIX_SEGMENT = 16, 1 << 13
"""Segments of a long line, at most: each goes through the counts of all; and elements that are worth one."""
RANKED_LINES = {32: 192, 64: 128}
"""By the bits of the keys: elements of the longest lines for which comparing all with all is faster than counting
digits."""
RANKED_TINY = 16
"""Elements of the longest lines for which that is faster than networks."""
SELECTION_SEGMENTS, SELECTION_SEGMENT = 8, 1 << 16
"""Segments of a line of which the largest are selected, at most; and elements that are worth one."""
PARTED_BYTES = 1 << 16
"""Bytes of items that are parted into buckets at once."""
BUCKET_BYTES, BUCKETS = 1 << 17, 128
"""Bytes of items that are worth a bucket; and buckets, at most."""
SORT_STACK_BYTES = 1 << 19
"""Bytes of items, and as many to spare, that lie on the stack: every thread's own stays in its cache."""
MERGED_BITS, PARTED_LEAST_BITS = 1 << 16, 1 << 14
"""Bits of items up to which networks are as fast as partitions, and less code; and those that partitions end with."""

# -- Fourier transforms

FFT_CHUNK = 1 << 13
"""Elements that make a chunk."""
FFT_NEAR_BYTES = 1 << 14
"""Bytes of a transform's data and its work buffer that stay in the first-level cache."""
FFT_ROW_BYTES = 1 << 18
"""Bytes of a row, which is on the stack between the two parts of its transform."""
FFT_ROW_ALONE = 1 << 12
"""Elements of the longest row of few: the parts of longer ones are for several threads."""
FFT_SPLIT = 64
"""Elements of the shortest transform that is worth splitting when there are few."""

# -- linear algebra

LINALG_CHUNK_WORK = 50_000
"""Vector operations of a chunk at least, if there are as many."""
FACTORED_COLUMNS = 96
"""Columns of a factor that go through the first-level cache together."""
BATCHED_ELEMENTS = 4096
"""Elements of the largest matrix of a batch that has one in each lane: beyond it a group leaves the
second-level cache."""
LANE_QR_ELEMENTS, LANE_LU_ELEMENTS = 1600, 1600
"""Elements of the largest matrix that lanes factor: each step goes through all that is left, beyond it stripes are
faster."""
EIGH_ROWS = 1024
"""Rows of the largest symmetric matrix whose eigenvectors are found here: beyond it the reduction waits for memory,
which OpenBLAS's threads do together."""
TRIANGLE_BYTES = 1 << 20
"""Bytes of a triangle from which on several stripes are solved with each of its panels."""

# -- random bits

RANDOM_CHUNK = 1 << 14
"""Blocks of a chunk."""
