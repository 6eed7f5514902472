"""The package name of google-research/albert, so that `python -m albert.run_classifier` runs.

A module of this package is a script of the repository's root folder or of `compat/`: there are no
others here. To use ALBERT from Python, import `albert_tf`.
"""

import os

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
__path__ = [_ROOT, os.path.join(_ROOT, "compat")]
