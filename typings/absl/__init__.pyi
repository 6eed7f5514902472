"""What this package uses of absl with a type: flags, which `cli/flags.py` makes of settings."""

from typing import Any

from absl import flags as flags

def __getattr__(name: str) -> Any: ...
