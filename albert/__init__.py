"""Provides google-research/albert's package name, so that `python -m albert.run_classifier` works.

The modules of this package are the scripts in the repository's root folder and in `compat/`. To use
ALBERT from Python, import `albert_tf`.
"""

import os

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
__path__ = [_ROOT, os.path.join(_ROOT, "compat")]
