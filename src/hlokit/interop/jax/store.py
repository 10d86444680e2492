"""The key-value store of JAX's coordinator, which all processes of `jax.distributed` share."""

from __future__ import annotations

from typing import Any

from hlokit.errors import EvaluationError


class CoordinatorStore:
    """The store behind a DistributedRuntimeClient. EvaluationError: the coordinator cannot be reached."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, key: str, value: bytes) -> None:
        """Keeps a value, once."""
        self._asked(lambda: self._client.key_value_set_bytes(key, value))

    def get(self, key: str, seconds: float) -> bytes | None:
        """The value, once there is one; None if there is none in time."""
        return self._asked(lambda: self._client.blocking_key_value_get_bytes(key, round(1000 * seconds)))

    def _asked(self, ask: Any) -> Any:
        try:
            return ask()
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise EvaluationError(f"JAX's key-value store: {error}") from None
