"""Pass, Pipeline, and the passes by name."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from hlokit.errors import ArgumentError, HlokitError, VerifyError
from hlokit.hlo.lineage import Lineage, Mark, Stage, cloned, composed, identity, recording
from hlokit.hlo.module import HloModule, check_is_module
from hlokit.hlo.verifier import verify
from hlokit.passes.effects import orders, restore, unscheduled
from hlokit.stack import with_stack
from hlokit.tracebacks import public

Observer: TypeAlias = Callable[[str, HloModule], None]
"""Called after each pass with its name and the module as it is then."""


class Pass:
    """Rewrites a module in place, keeping its meaning. A subclass with options is a dataclass: they are its fields.

    >>> class NegateTwice(hk.Pass):
    ...     def run(self, module):
    ...         root = module.entry.root
    ...         if root.opcode != "negate" or root.operands[0].opcode != "negate":
    ...             return False
    ...         module.entry.set_root(root.operands[0].operands[0])
    ...         module.entry.remove_dead()
    ...         return True
    >>> b = hk.Builder()
    >>> module = b.build(hk.neg(hk.neg(b.parameter(0, hk.f32[2]))))
    >>> len(hk.optimize(module, [NegateTwice()]).entry)
    1

    Attributes
    ----------
    name : str
        The pass's name: XLA's where XLA has it, with hyphens between the words.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.name:
            known = PASSES.get(cls.name)
            if known is not None and known.__module__.startswith("hlokit."):  # a notebook may define its own ones again
                raise TypeError(f"the pass {cls.name} is that of {known.__module__}.{known.__qualname__}")
            PASSES[cls.name] = cls

    def run(self, module: HloModule) -> bool:
        """Rewrites a module.

        Parameters
        ----------
        module : HloModule
            The module, which is changed.

        Returns
        -------
        bool
            Whether anything changed.
        """
        raise NotImplementedError(f"{type(self).__name__} does nothing")


PASSES: dict[str, type[Pass]] = {}
"""Every pass by name; defining a subclass of Pass with a name registers it."""

PassLike: TypeAlias = Pass | str | Callable[[HloModule], Any]
"""A pass, the name of one, or a function that rewrites a module in place and says whether it did."""


class Traced:
    """A copy of a module that passes rewrite, and which instructions of the module its instructions come from.

    `with_stages`: the program after each pass that changes it is kept too.
    """

    def __init__(self, source: HloModule, *, with_stages: bool = False) -> None:
        self.source = source
        self.module, self._origins = cloned(source)
        self._stages = [Stage("input", source, identity(source))] if with_stages else []
        self._last = self._origins

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """A pass runs in this block."""
        with recording(self._origins) as recorder:
            yield
        now = recorder.found(self.module)
        self._origins = composed(now, self._origins)
        if self._stages:
            self._last = composed(now, self._last)
            if self.module.to_text() != self._stages[-1].module.to_text():
                copy, same = cloned(self.module)
                self._stages.append(Stage(name, copy, composed(same, self._last)))
                self._last = {old: {new: Mark.SAME} for new, found in same.items() for old in found}

    def lineage(self) -> Lineage:
        return Lineage(self.source, self.module, self._origins, self._stages)


@dataclass(frozen=True)
class Pipeline(Pass):
    """Passes in order; after each that changed the module, effects are put back in order and names are made unique.

    >>> b = hk.Builder()
    >>> module = b.build(b.parameter(0, hk.f32[2]) * 1.0)
    >>> hk.Pipeline(("algsimp", "dce")).run(module), len(module.entry)
    (True, 1)

    Parameters
    ----------
    passes : tuple of str, Pass or callable
        The passes, in order.
    verify_each : bool, optional
        Whether to check every rule of the language after each pass; a VerifyError names the pass.
    """

    passes: tuple[PassLike, ...]
    verify_each: bool = False

    def run(self, module: HloModule, observe: Observer | None = None, *, traced: Traced | None = None) -> bool:
        """Runs the passes on a module.

        Parameters
        ----------
        module : HloModule
            The module, which is changed.
        observe : callable, optional
            Called after each pass with its name and the module as it is then.
        traced : Traced, optional
            What follows the instructions through the passes.

        Returns
        -------
        bool
            Whether anything changed.

        Raises
        ------
        VerifyError
            With `verify_each`, a pass broke rules.
        """
        changed = False
        has_effects = any(i.op.has_side_effect() for c in module.all_computations for i in c.instructions)
        for one in self.passes:
            name, rewrite = _named(one)
            before = orders(module) if has_effects else {}
            with nullcontext() if traced is None else traced.step(name):
                is_changed = rewrite(module) is not False  # a plain function may give nothing
                if is_changed:
                    restore(module, before)
                    module.settle()
            changed |= is_changed
            if self.verify_each:
                _verify_after(name, module)
            if observe is not None:
                observe(name, module)
        return changed


@public
@with_stack
def optimize(
    module: HloModule,
    passes: Sequence[PassLike] | None = None,
    *,
    verify_each: bool = False,
    observe: Observer | None = None,
    lineage: bool | Literal["stages"] = False,
) -> HloModule:
    """A new module with the same meaning, rewritten by passes. The given one stays as it is.

    Parameters
    ----------
    module : HloModule
        The program.
    passes : sequence of str, Pass or callable, optional
        Names (see `PASSES`), Pass objects or functions of a module, in order; None takes the default pipeline.
    verify_each : bool, optional
        Whether to check every rule of the language after each pass.
    observe : callable, optional
        Called after each pass with its name and the module as it is then.
    lineage : bool or "stages", optional
        Whether to record, as `lineage` of the new module, which instructions of `module` its instructions come from;
        "stages" keeps the program after each pass as well.

    Returns
    -------
    HloModule
        The new module.

    Raises
    ------
    VerifyError
        A pass made a module that breaks rules, which the message names; or the given one does.
    HlokitError
        There is no pass of this name.
    ArgumentError
        `passes` is a str.

    Examples
    --------
    >>> b = hk.Builder()
    >>> module = b.build(hk.neg(hk.neg(b.parameter(0, hk.f32[2]))))
    >>> len(module.entry), len(hk.optimize(module).entry)
    (3, 1)
    """
    check_is_module(module)
    if isinstance(passes, str):
        raise ArgumentError(f"optimize: passes={passes!r} is not a list: write [{passes!r}]")
    pipeline = Pipeline(tuple(DEFAULT if passes is None else passes), verify_each)
    if lineage:
        traced = Traced(module, with_stages=lineage == "stages")
        unscheduled(traced.module)
        pipeline.run(traced.module, observe, traced=traced)
        traced.module.lineage = traced.lineage()
        return traced.module
    copy = module.clone()
    unscheduled(copy)
    pipeline.run(copy, observe)
    return copy


DEFAULT = (
    "operand-upcaster",
    "call-inliner",
    "tuple-simplifier",
    "zero-sized-hlo-elimination",
    "algsimp",
    "constant-folding",
    "conditional-simplifier",
    "while-loop-constant-sinking",
    "while-loop-range-simplifier",
    "while-loop-simplifier",
    "while-loop-invariant-code-motion",
    "tuple-simplifier",
    "algsimp",
    "cse",
    "dce",
)
"""The passes of `optimize` where none are named: they keep every bit.

Not among them: "dynamic-padder", which changes what a program takes and gives, and "computation-deduplicator"; nor
"op-expander", "conv-canonicalization", "tree-reduction-rewriter", "reduce-window-rewriter", "scatter-splitter",
"while-loop-scalarizer" and "algsimp-fast", which round otherwise.
"""


def pass_name(written: str) -> str:
    """The name of a pass in its one spelling: XLA has hyphens in some and underscores in others."""
    return written if written in PASSES else written.replace("_", "-")


def _named(one: PassLike) -> tuple[str, Callable[[HloModule], Any]]:
    if isinstance(one, str):
        if pass_name(one) not in PASSES:
            from difflib import get_close_matches

            close = get_close_matches(pass_name(one), PASSES, 3)
            told = f"did you mean {', '.join(close)}?" if close else f"one of {', '.join(sorted(PASSES))}"
            raise HlokitError(f"no pass {one!r}; {told}")
        one = PASSES[pass_name(one)]()
    if isinstance(one, Pass):
        return one.name or type(one).__name__, one.run
    return getattr(one, "__name__", repr(one)), one


def _verify_after(name: str, module: HloModule) -> None:
    try:
        verify(module)
    except VerifyError as error:
        raise VerifyError(error.findings, after=name) from None
