"""See `typings/tf_keras`."""

from collections.abc import Callable
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

def __getattr__(name: str) -> Any: ...
def register_keras_serializable(package: str = "Custom") -> Callable[[C], C]: ...
