"""JAX's lowering rules for hlokit: those of the CPU, except for rules that depend on the platform or a partitioner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hlokit.interop.jax import callbacks, targets

PLATFORM = "hlokit"


def install(platform: str = PLATFORM) -> None:
    """Makes JAX lower programs for hlokit as `platform`, whether or not it has devices. More calls change nothing.

    The platform "cpu" keeps JAX's own rules, which are hlokit's then.
    """
    from jax._src.interpreters import mlir

    targets.install()
    rules: Any = mlir._platform_specific_lowerings  # pyright: ignore
    if isinstance(rules.get(platform), _Rules):
        return
    rules[platform] = _Rules(rules, platform)
    if platform not in mlir._platforms_with_donation:  # pyright: ignore
        mlir._platforms_with_donation.append(platform)  # pyright: ignore
    callbacks.install(platform)


class _Rules(dict[Any, Any]):
    """Rules by primitive. What has none here has the CPU's, also if that is registered later."""

    def __init__(self, rules: Any, platform: str) -> None:
        super().__init__(rules.get(platform, {}))
        self._rules = rules
        self._platform = platform

    def __contains__(self, primitive: object) -> bool:
        if super().__contains__(primitive) or _name(primitive) in _CHANGED:
            return True
        return self._platform != "cpu" and (_name(primitive) in _RENAMED or primitive in self._rules["cpu"])

    def __missing__(self, primitive: Any) -> Any:
        from jax._src.interpreters import mlir

        change = _CHANGED.get(_name(primitive)) or _RENAMED.get(_name(primitive))
        if change is None:
            return self._rules["cpu"][primitive]
        common: Any = mlir._lowerings[primitive]  # pyright: ignore
        rule = change(common.rule, self._platform)
        self[primitive] = mlir.LoweringRuleEntry(rule, common.inline)
        return self[primitive]


def _name(primitive: Any) -> str:
    return getattr(primitive, "name", "")


def _choice(name: str) -> Callable[[Callable[..., Any], str], Callable[..., Any]]:
    """lax.platform_dependent's rules choose by the parameter `name`, where `platform` takes the CPU's place."""

    def change(rule: Callable[..., Any], platform: str) -> Callable[..., Any]:
        def changed(context: Any, *args: Any, **parameters: Any) -> Any:
            choices: Any = parameters.get(name)
            if choices is not None and not any(names and platform in names for names in choices):
                parameters[name] = tuple(names and tuple(_renamed(names, platform)) for names in choices)
            return rule(context, *args, **parameters)

        return changed

    return change


def _renamed(names: Iterable[str], platform: str) -> list[str]:
    return [platform if name == "cpu" else name for name in names]


def _exported(rule: Callable[..., Any], platform: str) -> Callable[..., Any]:
    """Lets what was exported for the CPU run too, if it was not exported for `platform`."""
    as_cpu = callbacks.as_cpu(rule, platform)

    def changed(context: Any, *args: Any, exported: Any, **parameters: Any) -> Any:
        chosen = rule if platform in exported.platforms else as_cpu
        return chosen(context, *args, exported=exported, **parameters)

    return changed


def _whole(rule: Callable[..., Any], platform: str) -> Callable[..., Any]:
    """A function with a partitioner of its own runs on whole values: there is no partitioner that could ask it."""

    def changed(context: Any, *args: Any, call: Any, **parameters: Any) -> Any:
        from jax.extend.core import jaxpr_as_fun
        from jax.interpreters import mlir

        return mlir.lower_fun(jaxpr_as_fun(call), multiple_results=True)(context, *args)  # pyright: ignore

    return changed


def _common(rule: Callable[..., Any], platform: str) -> Callable[..., Any]:
    """The rule of all platforms: the CPU's refuses algorithms of products that JAX's CPU client would ignore."""
    return rule


_CHANGED = {
    "buffer_callback": callbacks.as_cpu,
    "custom_partitioning": _whole,
    "inspect_sharding": callbacks.inspected,
}
"""Modules of rules, common to all platforms, that hlokit replaces: they use other callbacks or a partitioner."""
_RENAMED = {
    "call_exported": _exported,
    "cond": _choice("branches_platforms"),
    "dot_general": _common,
    "platform_index": _choice("platforms"),
}
"""Modules of rules that hlokit replaces where its platform is not named "cpu": they ask which it is."""
