"""jax.scipy: special functions, distributions, signals, images, optimisation, sparse solvers."""

import jax.numpy as jnp
import jax.scipy as jsp
import jax.scipy.cluster.vq
import jax.scipy.integrate
import jax.scipy.interpolate
import jax.scipy.ndimage
import jax.scipy.optimize
import jax.scipy.signal
import jax.scipy.sparse.linalg
import jax.scipy.stats  # noqa: F401
import numpy as np
from jax.scipy.spatial.transform import Rotation, Slerp

from tests.jax.functions.table import case, each, integers, normal, positive, uniform

M, S = "jax.scipy.special", "jax.scipy.stats"
X, UNIT = normal(3, 4), uniform(3, 4, low=0.1, high=0.9)
A, B = uniform(3, 4, low=0.5, high=3), uniform(3, 4, low=0.5, high=3, seed=1)
K = integers(3, 4, high=6)
LOOSE = {"tolerance": 1e-4, "reason": "a series or a difference of large terms: one rounding of its terms shows"}

SPECIAL = [
    *each(M, "erf erfc", X, types="f32 bf16"),
    *each(M, "erfcx dawsn entr log_ndtr ndtr expit log_softmax softmax logsumexp i0 i0e i1 i1e", X),
    *each(M, "erfinv logit ndtri", UNIT),
    *each(M, "digamma gamma gammaln gammasgn loggamma factorial exp1 sici fresnel spence", A),
    *each(M, "expi", A),
    *each(M, "beta betaln gammainc gammaincc kl_div rel_entr xlogy xlog1py boxcox boxcox1p poch", A, B),
    case(f"{M}.zeta", None, A + 1, B, by=(1,)),
    case(f"{M}.owens_t", None, X, B),
    case(f"{M}.comb", None, A + 3, B),
    case(f"{M}.wofz", None, X, types="c64"),
    case(f"{M}.betainc", None, A, B, UNIT, by=(2,)),
    case(f"{M}.bernoulli", lambda: jsp.special.bernoulli(8)),
    case(f"{M}.bessel_jn", lambda x: jsp.special.bessel_jn(x, v=3), A[0], **LOOSE),
    case(f"{M}.expn", lambda x: jsp.special.expn(2, x), A),
    case(f"{M}.hyp1f1", lambda a, b, x: jsp.special.hyp1f1(a, b, x), A[0, :2], B[0, :2], UNIT[0, :2], **LOOSE),
    case(f"{M}.hyp2f1", lambda x: jsp.special.hyp2f1(0.5, 1.5, 2.0, x), UNIT[0, :2], **LOOSE),
    case(f"{M}.multigammaln", lambda x: jsp.special.multigammaln(x + 2, 3), A),
    case(f"{M}.polygamma", lambda x: jsp.special.polygamma(1, x), A),
    case(f"{M}.sph_harm_y", lambda t, p: jsp.special.sph_harm_y(jnp.array([2]), jnp.array([1]), t[0, :1], p[0, :1], n_max=3), A, B),
]  # fmt: skip


def distribution(name, names, *args, **flags):
    return each(f"{S}.{name}", names, *args, **flags)


STATS = [
    *distribution("bernoulli", "logpmf pmf cdf", K % 2, UNIT),
    *distribution("bernoulli", "ppf", UNIT, UNIT[::-1].copy()),
    *distribution("beta", "cdf logcdf logsf sf", UNIT, A, B, by=(0,)),
    *distribution("beta", "logpdf pdf", UNIT, A, B),
    *distribution("betabinom", "logpmf pmf", K, np.float32(8), A, B),
    *distribution("binom", "logpmf pmf", K, np.float32(8), UNIT),
    *distribution("cauchy", "cdf logcdf logpdf logsf pdf sf", X),
    *distribution("cauchy", "isf ppf", UNIT),
    *distribution("chi2", "cdf logcdf logpdf logsf pdf sf", A, B),
    *distribution("dirichlet", "logpdf pdf", np.float32([0.2, 0.5, 0.3]), A[0, :3]),
    *distribution("expon", "cdf logcdf logpdf logsf pdf sf", A),
    *distribution("expon", "ppf", UNIT),
    *distribution("gamma", "cdf logcdf logpdf logsf pdf sf", A, B),
    *distribution("gennorm", "cdf logpdf pdf", X, A),
    *distribution("geom", "logpmf pmf", K + 1, UNIT),
    *distribution("gumbel_l", "cdf logcdf logpdf logsf pdf sf", X),
    *distribution("gumbel_l", "ppf", UNIT, no_grad=True),
    *distribution("gumbel_r", "cdf logcdf logpdf logsf pdf sf", X),
    *distribution("gumbel_r", "ppf", UNIT, no_grad=True),
    *distribution("laplace", "cdf logpdf pdf", X),
    *distribution("logistic", "cdf logpdf pdf sf", X),
    *distribution("logistic", "isf ppf", UNIT),
    *distribution("multinomial", "logpmf pmf", np.int32([2, 1, 3]), np.int32(6), np.float32([0.2, 0.3, 0.5]), batch=(np.int32([1, 4, 1]), np.int32(6), np.float32([0.4, 0.3, 0.3]))),
    *distribution("multivariate_normal", "logpdf pdf", X[:, :3], A[0, :3], positive(3)),
    *distribution("nbinom", "logpmf pmf", K, A, UNIT),
    *distribution("norm", "cdf logcdf logpdf logsf pdf sf", X),
    *distribution("norm", "isf ppf", UNIT),
    *distribution("pareto", "cdf logcdf logpdf logsf pdf sf", A + 1, B),
    *distribution("pareto", "ppf", UNIT, B),
    *distribution("poisson", "logpmf pmf cdf", K, A),
    *distribution("poisson", "entropy", A[0], **LOOSE),
    *distribution("t", "logpdf pdf", X, A),
    *distribution("truncnorm", "cdf logcdf logpdf logsf pdf sf", UNIT, -A, B),
    *distribution("uniform", "cdf logpdf pdf ppf", UNIT),
    *distribution("vonmises", "logpdf pdf", X, A),
    *distribution("wrapcauchy", "logpdf pdf", A, UNIT),
    case(f"{S}.gaussian_kde", lambda x, p: jsp.stats.gaussian_kde(x).evaluate(p), normal(2, 9), normal(2, 3), **LOOSE),
    case(f"{S}.mode", lambda x: tuple(jsp.stats.mode(x)), K),
    *each(S, "rankdata", K),
    *each(S, "sem", X),
]  # fmt: skip

G = "jax.scipy.signal"
WAVE = normal(40)
SIGNAL = [
    *each(G, "convolve correlate fftconvolve", normal(8), normal(3)),
    *each(G, "convolve2d correlate2d", normal(4, 5), normal(2, 3)),
    case(f"{G}.detrend", None, normal(3, 8)),
    case(f"{G}.stft", lambda x: jsp.signal.stft(x, nperseg=8), WAVE),
    case(f"{G}.istft", lambda x: jsp.signal.istft(x, nperseg=8), normal(5, 6), types="c64"),
    case(f"{G}.welch", lambda x: jsp.signal.welch(x, nperseg=8), WAVE),
    case(f"{G}.csd", lambda x, y: jsp.signal.csd(x, y, nperseg=8), WAVE, normal(40, seed=1)),
]  # fmt: skip


def bowl(x, a):
    return jnp.sum((x - a) ** 2) + jnp.sum(x[1:] * x[:-1]) * 0.5


def matvec(a):
    return lambda x: a @ x


SOLVER = {"tolerance": 1e-4, "reason": "an iterative solver: the number of steps may differ by one"}
ROTATION = normal(3)
OTHERS = [
    case("jax.scipy.ndimage.map_coordinates", lambda x, c: jsp.ndimage.map_coordinates(x, [c[0], c[1]], order=1, mode="wrap"), normal(5, 6), uniform(2, 7, high=5)),
    case("jax.scipy.optimize.minimize", lambda a: jsp.optimize.minimize(bowl, jnp.zeros(3), (a,), method="BFGS").x, normal(3), no_grad=True, **SOLVER),
    case("jax.scipy.interpolate.RegularGridInterpolator", lambda v, p: jsp.interpolate.RegularGridInterpolator((jnp.arange(3.0), jnp.arange(4.0)), v)(p), X, uniform(5, 2, high=2)),
    *[case(f"jax.scipy.sparse.linalg.{f}", lambda a, b, f=f: getattr(jsp.sparse.linalg, f)(matvec(a), b)[0], positive(4), normal(4), **SOLVER)
      for f in ("cg", "bicgstab", "gmres")],
    case("jax.scipy.cluster.vq.vq", None, normal(6, 2), normal(3, 2)),
    case("jax.scipy.integrate.trapezoid", lambda y, x: jsp.integrate.trapezoid(y, x), X, np.sort(normal(4))),
    case("jax.scipy.spatial.transform.Rotation", lambda v: (Rotation.from_rotvec(v) * Rotation.from_euler("x", 0.3)).as_quat(), ROTATION),
    case("jax.scipy.spatial.transform.Rotation", lambda v, p: Rotation.from_rotvec(v).apply(p), ROTATION, normal(5, 3), label="apply"),
    case("jax.scipy.spatial.transform.Slerp", lambda q, t: Slerp.init(jnp.arange(3.0), Rotation.from_quat(q))(t).as_matrix(), normal(3, 4), np.float32([0.3, 1.6])),
]  # fmt: skip
CASES = [*SPECIAL, *STATS, *SIGNAL, *OTHERS]
