"""See `typings/tensorflow`."""

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

def do_not_convert(func: F) -> F: ...
