"""See `typings/tf_keras`."""

from typing import Any

from tf_keras import Model

def __getattr__(name: str) -> Any: ...

class Callback:
    model: Model
    params: dict[str, Any]
