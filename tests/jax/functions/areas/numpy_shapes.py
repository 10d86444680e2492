"""jax.numpy: shapes, indices, making and joining arrays, bits, windows; what runs outside jit."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax.functions.table import case, each, integers, normal

M = "jax.numpy"
X, Y, CUBE = normal(3, 4), normal(3, 4, seed=1), normal(2, 3, 4)
N = integers(3, 4, high=3)
BITS = integers(3, 16, high=2, dtype=np.uint8)
FEW = "f32 bf16 i32 u8 bool c64"

CASES = [
    case(f"{M}.reshape", lambda x: jnp.reshape(x, (2, 6)), X, types=FEW),
    case(f"{M}.ravel", lambda x: jnp.ravel(x, order="F"), X),
    case(f"{M}.transpose", lambda x: jnp.transpose(x, (2, 0, 1)), CUBE, types=FEW),
    case(f"{M}.permute_dims", lambda x: jnp.permute_dims(x, (1, 0, 2)), CUBE),
    case(f"{M}.matrix_transpose", None, CUBE),
    case(f"{M}.swapaxes", lambda x: jnp.swapaxes(x, 0, 2), CUBE),
    case(f"{M}.moveaxis", lambda x: jnp.moveaxis(x, 0, -1), CUBE),
    case(f"{M}.rollaxis", lambda x: jnp.rollaxis(x, 2), CUBE),
    case(f"{M}.expand_dims", lambda x: jnp.expand_dims(x, (0, 2)), X),
    case(f"{M}.squeeze", lambda x: jnp.squeeze(x, 1), normal(3, 1, 4)),
    case(f"{M}.broadcast_to", lambda x: jnp.broadcast_to(x, (2, 3, 4)), X, types=FEW),
    case(f"{M}.broadcast_arrays", lambda x, y: jnp.broadcast_arrays(x, y), X, Y[0]),
    *each(M, "atleast_1d atleast_2d atleast_3d", X[0]),
    case(f"{M}.resize", lambda x: jnp.resize(x, (5, 3)), X),
    *each(M, "flipud fliplr", X),
    case(f"{M}.rot90", lambda x: jnp.rot90(x, 3), X),
    case(f"{M}.roll", lambda x, n: jnp.roll(x, n, axis=1), X, np.int32(3)),
    case(f"{M}.tile", lambda x: jnp.tile(x, (2, 1, 2)), X),
    case(f"{M}.repeat", lambda x: jnp.repeat(x, jnp.array([1, 0, 2, 1]), axis=1, total_repeat_length=5), X),
    *[case(f"{M}.{f}", lambda x, y, f=f: getattr(jnp, f)([x, y]), X, Y)
      for f in ["concatenate", "concat", "stack", "vstack", "hstack", "dstack", "column_stack"]],
    case(f"{M}.block", lambda x, y: jnp.block([[x, y], [y, x]]), X, Y),
    case(f"{M}.append", lambda x, y: jnp.append(x, y, axis=0), X, Y),
    *[case(f"{M}.{f}", lambda x, f=f: getattr(jnp, f)(x, 2), normal(2, 4, 2)) for f in ["split", "hsplit", "vsplit", "dsplit"]],
    case(f"{M}.array_split", lambda x: jnp.array_split(x, 3, axis=1), X),
    case(f"{M}.unstack", None, X),
    *[case(f"{M}.pad", lambda x, mode=mode: jnp.pad(x, ((1, 2), (0, 3)), mode=mode), X, label=mode)
      for mode in ["constant", "edge", "reflect", "wrap", "symmetric", "linear_ramp", "mean", "maximum"]],
    case(f"{M}.insert", lambda x, v: jnp.insert(x, 1, v, axis=1), X, Y[:, 0]),
    case(f"{M}.delete", lambda x: jnp.delete(x, jnp.array([1, 2]), axis=1, assume_unique_indices=True), X),
    case(f"{M}.take", lambda x, n: jnp.take(x, n, axis=1), X, N, types=FEW),
    case(f"{M}.take", lambda x, n: jnp.take(x, n, mode="wrap"), X, N * 7 - 9, label="wrap"),
    case(f"{M}.take", lambda x, n: jnp.take(x, n, mode="fill"), X, N * 7 - 9, label="fill"),
    case(f"{M}.take_along_axis", lambda x, n: jnp.take_along_axis(x, n, axis=1), X, N),
    case(f"{M}.put_along_axis", lambda x, n, y: jnp.put_along_axis(x, n, y, 1, inplace=False), X, np.int32([[0], [3], [1]]), Y[:, :1]),
    case(f"{M}.put", lambda x, n, y: jnp.put(x, n, y, inplace=False), X, np.int32([0, 7, 3]), Y[0, :3]),
    case(f"{M}.place", lambda x, m, y: jnp.place(x, m, y, inplace=False), X, N > 1, Y[0]),
    case(f"{M}.fill_diagonal", lambda x, v: jnp.fill_diagonal(x, v, inplace=False), X, np.float32(7)),
    case(f"{M}.choose", lambda n, x, y, z: jnp.choose(n, [x, y, z], mode="clip"), N, X, Y, X * Y),
    case(f"{M}.diag", lambda x: jnp.diag(x, 1), X),
    case(f"{M}.diagflat", lambda x: jnp.diagflat(x, -1), X[0]),
    case(f"{M}.diagonal", lambda x: jnp.diagonal(x, 1, 0, 2), CUBE),
    *each(M, "tril triu", X, types="f32 bool c64"),
    case(f"{M}.tri", lambda x: x * jnp.tri(3, 4, 1), X),
    *[case(f"{M}.{f}", lambda x, f=f: x[getattr(jnp, f)(3, 1, 4)], X) for f in ("tril_indices", "triu_indices")],
    *[case(f"{M}.{f}", lambda x, f=f: x[getattr(jnp, f)(x)], X) for f in ("tril_indices_from", "triu_indices_from")],
    case(f"{M}.diag_indices", lambda x: x[jnp.diag_indices(3)], X),
    case(f"{M}.diag_indices_from", lambda x: x[jnp.diag_indices_from(x)], normal(3, 3)),
    case(f"{M}.mask_indices", lambda x: x[jnp.mask_indices(3, jnp.triu)], X[:, :3], host=True),
    case(f"{M}.indices", lambda x: x + jnp.indices((3, 4), dtype=jnp.float32).sum(0), X),
    case(f"{M}.ix_", lambda x, i, j: x[jnp.ix_(i, j)], X, np.int32([2, 0]), np.int32([3, 1, 1])),
    case(f"{M}.meshgrid", lambda x, y: jnp.meshgrid(x, y, indexing="ij"), X[0], Y[0]),
    case(f"{M}.unravel_index", lambda n: jnp.unravel_index(n, (3, 4)), N * 4),
    case(f"{M}.ravel_multi_index", lambda i, j: jnp.ravel_multi_index((i, j), (3, 4), mode="clip"), N, N + 1),
    case(f"{M}.zeros_like", None, X, types=FEW),
    case(f"{M}.ones_like", None, X, types=FEW),
    case(f"{M}.full_like", lambda x, v: jnp.full_like(x, v), X, np.float32(3)),
    case(f"{M}.empty_like", lambda x: jnp.empty_like(x) + x, X),
    case(f"{M}.copy", None, X, types=FEW),
    case(f"{M}.array", lambda x: jnp.array([x, x + 1], dtype=jnp.bfloat16), X),
    case(f"{M}.asarray", lambda x: jnp.asarray(x, jnp.int8), X * 9),
    *[case(f"{M}.{f}", lambda f=f: getattr(jnp, f)((2, 3), jnp.float32)) for f in ("zeros", "ones", "empty")],
    case(f"{M}.full", lambda v: jnp.full((2, 3), v), np.float32(4)),
    case(f"{M}.eye", lambda: jnp.eye(3, 4, 1)),
    case(f"{M}.identity", lambda: jnp.identity(4)),
    case(f"{M}.arange", lambda: (jnp.arange(7), jnp.arange(0.5, 3, 0.25))),
    case(f"{M}.linspace", lambda a, b: jnp.linspace(a, b, 7), np.float32(-1), np.float32(3)),
    case(f"{M}.logspace", lambda a, b: jnp.logspace(a, b, 5), np.float32(-1), np.float32(1)),
    case(f"{M}.geomspace", lambda a, b: jnp.geomspace(a, b, 5), np.float32(1), np.float32(9)),
    case(f"{M}.fromfunction", lambda x: x + jnp.fromfunction(lambda i, j: i * 2 + j, (3, 4)), X),
    *[case(f"{M}.{f}", lambda x, f=f: x * getattr(jnp, f)(9), normal(9)) for f in ["bartlett", "blackman", "hamming", "hanning"]],
    case(f"{M}.kaiser", lambda x: jnp.kaiser(9, x), np.float32(4)),
    case(f"{M}.packbits", None, BITS),
    case(f"{M}.unpackbits", lambda b: jnp.unpackbits(b, axis=1, bitorder="little"), BITS * 100),
    case(f"{M}.trim_zeros", None, np.float32([0, 0, 1, 2, 0]), host=True),
    case(f"{M}.array_repr", None, np.arange(4), host=True),
    case(f"{M}.array_str", None, np.arange(4), host=True),
    case(f"{M}.frombuffer", lambda: jnp.frombuffer(b"\0\1\2\3" * 4, jnp.int32) + 1, host=True),
    case(f"{M}.fromstring", lambda: jnp.fromstring("1 2 3", sep=" ") + 1, host=True),
    case(f"{M}.from_dlpack", lambda x: jnp.from_dlpack(np.array(x)) * 2, X, host=True),
    case(f"{M}.iscomplexobj", None, X, host=True),
    case(f"{M}.isrealobj", None, X, host=True),
    case(f"{M}.size", None, X, host=True),
    case(f"{M}.ndim", None, X, host=True),
    case(f"{M}.shape", None, X, host=True),
    case(f"{M}.result_type", lambda x: str(jnp.result_type(x, jnp.int8)), X, host=True),
    case(f"{M}.save", lambda x: _saved(x), X, host=True),
    case("jax.Array", lambda x, n, y: (jax.Array, x)[1].at[n].add(y, mode="drop"), X, N[0] * 2, normal(4, 4)),
    case("jax.Array", lambda x: (jax.Array, x.view(jnp.int32))[1], X, label="view"),
]  # fmt: skip


def _saved(x):
    import io

    file = io.BytesIO()
    jnp.save(file, x)
    file.seek(0)
    return jax.numpy.load(file) + 1
