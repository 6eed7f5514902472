"""What this package uses of TensorFlow with a type: base classes and decorators.

All other names are unknown to type checkers, among them `tf.Tensor`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

from tensorflow import autograph as autograph

P = ParamSpec("P")
R = TypeVar("R")

def __getattr__(name: str) -> Any: ...

class Module:
    def __init__(self, name: str | None = None) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def submodules(self) -> Sequence[Module]: ...

class _Traced(Generic[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any: ...
    def experimental_get_compiler_ir(self, *args: Any, **kwargs: Any) -> Any: ...

@overload
def function(func: Callable[P, R], /, **options: object) -> _Traced[P, R]: ...
@overload
def function(**options: object) -> Callable[[Callable[P, R]], Callable[P, R]]: ...  # decorator

# The decorated function returns a result and the function of its gradient; callers get the result.
def custom_gradient(f: Callable[P, tuple[R, Callable[..., object]]]) -> Callable[P, R]: ...
