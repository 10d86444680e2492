"""jax.numpy: reductions, scans, sorting, searching, products, statistics."""

import jax.numpy as jnp
import numpy as np

from tests.jax.functions.table import case, each, integers, normal

M = "jax.numpy"
X, Y, CUBE = normal(3, 4), normal(3, 4, seed=1), normal(2, 3, 4)
HOLES = np.where(integers(3, 4, high=4) == 0, np.float32(np.nan), X)
COUNTS = integers(12, high=6)
WIDE = "f32 bf16 i32 c64 u8 bool"
LINE = np.float32([-1.5, -0.2, 0.4, 1.1])


def along(f, axis=1, **options):
    return lambda x: getattr(jnp, f)(x, axis=axis, **options)


def reductions(names, x, **flags):
    return [case(f"{M}.{name}", along(name), x, **flags) for name in names.split()]


CASES = [
    *reductions("sum prod mean", X, types=WIDE),
    *reductions("max min amax amin", X, types="f32 bf16 i32 u8 bool"),
    *reductions("argmax argmin", X, types="f32 bf16 i32 u8 bool"),
    *reductions("all any count_nonzero", X, types="f32 i32 bool"),
    *reductions("var std ptp", X, types="f32 bf16"),
    *reductions("median average", X),
    *reductions("cumsum cumprod", X, types="f32 bf16 i32 c64"),
    *reductions("cumulative_sum cumulative_prod", X),
    *reductions("nansum nanprod nanmean nanmax nanmin nanvar nanstd nanmedian nanargmax nanargmin", HOLES),
    *reductions("nancumsum nancumprod", HOLES),
    *reductions("sort argsort", X, types="f32 bf16 i32 u8 bool c64"),
    *reductions("diff", X, types="f32 i32 bool"),
    *reductions("gradient trapezoid flip", X),
    case(f"{M}.sum", lambda x: jnp.sum(x, axis=(0, 2), keepdims=True), CUBE, label="two axes"),
    case(f"{M}.quantile", lambda x, q: jnp.quantile(x, q, axis=1), X, np.float32([0.2, 0.7])),
    case(f"{M}.percentile", lambda x: jnp.percentile(x, 30, axis=0, method="lower"), X),
    case(f"{M}.nanquantile", lambda x: jnp.nanquantile(x, 0.4, axis=1), HOLES),
    case(f"{M}.nanpercentile", lambda x: jnp.nanpercentile(x, 60), HOLES),
    case(f"{M}.partition", lambda x: jnp.sort(jnp.partition(x, 2)[:, :2]), X),
    case(f"{M}.argpartition", lambda x: jnp.sort(jnp.argpartition(x, 2)[:, :2]), X),
    case(f"{M}.lexsort", lambda a, b: jnp.lexsort((a, b)), X[0], COUNTS[:4]),
    *each(M, "sort_complex", X[0]),
    case(f"{M}.searchsorted", lambda a, v: jnp.searchsorted(a, v), LINE, X, batch=(LINE + 1, Y)),
    case(f"{M}.searchsorted", lambda a, v: jnp.searchsorted(a, v, side="right", method="sort"), LINE, X, label="sort",
         batch=(LINE + 1, Y)),
    case(f"{M}.digitize", lambda x, bins: jnp.digitize(x, bins), X, LINE, batch=(Y, LINE + 1)),
    case(f"{M}.bincount", lambda x, w: jnp.bincount(x, w, length=6), COUNTS, normal(12)),
    case(f"{M}.histogram", lambda x: jnp.histogram(x, bins=5, range=(-2, 2)), X),
    case(f"{M}.histogram2d", lambda x, y: jnp.histogram2d(x, y, bins=3), X.ravel(), Y.ravel()),
    case(f"{M}.histogramdd", lambda x: jnp.histogramdd(x, bins=3), normal(9, 2)),
    case(f"{M}.histogram_bin_edges", lambda x: jnp.histogram_bin_edges(x, bins=4), X),
    case(f"{M}.cov", lambda x, y: jnp.cov(x, y), X, Y),
    case(f"{M}.corrcoef", None, X),
    case(f"{M}.ediff1d", None, X),
    case(f"{M}.nonzero", lambda x: jnp.nonzero(x > 0, size=8, fill_value=-1), X),
    case(f"{M}.flatnonzero", lambda x: jnp.flatnonzero(x > 0, size=8), X),
    case(f"{M}.argwhere", lambda x: jnp.argwhere(x > 0, size=8), X),
    case(f"{M}.extract", lambda c, x: jnp.extract(c, x, size=3, fill_value=0), COUNTS[:4] > 2, X[0]),
    case(f"{M}.compress", lambda c, x: jnp.compress(c, x, axis=1, size=3), COUNTS[:4] > 2, X),
    case(f"{M}.unique", lambda x: jnp.unique(x, return_counts=True, return_inverse=True, size=6), COUNTS),
    case(f"{M}.unique_all", lambda x: tuple(jnp.unique_all(x, size=6)), COUNTS),
    case(f"{M}.unique_counts", lambda x: tuple(jnp.unique_counts(x, size=6)), COUNTS),
    case(f"{M}.unique_inverse", lambda x: tuple(jnp.unique_inverse(x, size=6)), COUNTS),
    case(f"{M}.unique_values", lambda x: jnp.unique_values(x, size=6), COUNTS),
    case(f"{M}.union1d", lambda x, y: jnp.union1d(x, y, size=9), COUNTS, COUNTS[::-1] + 2),
    case(f"{M}.intersect1d", lambda x, y: jnp.intersect1d(x, y, size=6, fill_value=-1), COUNTS, COUNTS[::-1] + 2),
    case(f"{M}.setdiff1d", lambda x, y: jnp.setdiff1d(x, y, size=4, fill_value=-1), COUNTS, COUNTS[::-1] + 2),
    case(f"{M}.setxor1d", lambda x, y: jnp.setxor1d(x, y, size=8, fill_value=-1), COUNTS, COUNTS[::-1] + 2),
    case(f"{M}.isin", None, COUNTS, COUNTS[:2]),
    *each(M, "dot matmul", X, Y.T, types="f32 bf16 i32 c64 u8 bool"),
    *each(M, "inner vdot vecdot", X, Y, types="f32 bf16 i32 c64"),
    *each(M, "outer kron", X[0], Y, types="f32 i32 c64"),
    *each(M, "matvec", X, Y[0]),
    *each(M, "vecmat", X[:, 0], Y),
    case(f"{M}.tensordot", lambda a, b: jnp.tensordot(a, b, axes=((0, 2), (1, 0))), CUBE, normal(4, 2, 5)),
    case(f"{M}.einsum", lambda a, b: jnp.einsum("bij,kj,bi->bk", a, b, a[..., 0]), CUBE, Y, types="f32 bf16 c64 i32"),
    case(f"{M}.cross", None, normal(4, 3), normal(4, 3, seed=1)),
    *each(M, "convolve correlate", normal(8), normal(3), types="f32 i32"),
    case(f"{M}.trace", None, normal(4, 4)),
    case(f"{M}.polyfit", lambda x, y: jnp.polyfit(x, y, 2), np.float32([-1, -0.4, 0.1, 0.5, 1]), normal(5),
         tolerance=1e-4, reason="least squares by LAPACK, the fit is worse conditioned than one rounding"),
    case(f"{M}.poly", None, normal(3)),
    case(f"{M}.roots", lambda p: jnp.roots(p, strip_zeros=False), normal(4),
         tolerance=1e-4, reason="eigenvalues of a companion matrix"),
    *each(M, "polyadd polysub polymul", normal(4), normal(3)),
    case(f"{M}.polydiv", None, normal(5), normal(3)),
    *each(M, "polyder polyint", normal(5)),
    case(f"{M}.vander", lambda x: jnp.vander(x, 4), normal(5)),
    case(f"{M}.apply_along_axis", lambda x: jnp.apply_along_axis(jnp.cumsum, 1, x), X),
    case(f"{M}.apply_over_axes", lambda x: jnp.apply_over_axes(jnp.sum, x, (0, 2)), CUBE),
    case(f"{M}.vectorize", lambda x, y: jnp.vectorize(jnp.dot, signature="(n),(n)->()")(x, y), X, Y),
    case(f"{M}.frompyfunc", lambda x: jnp.frompyfunc(lambda a, b: a + 2 * b, 2, 1).reduce(x, axis=1), X),
]  # fmt: skip
