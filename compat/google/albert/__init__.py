"""Provides google-research/albert's package name: `python -m albert.run_classifier`.

Run such commands in `compat/google`. The modules are those of this folder, and the scripts in the
root folder of the repository. To use ALBERT from Python, import `albert_tf`.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.abspath(f"{_HERE}/../../..")
__path__ = [_HERE, _ROOT]
sys.path.insert(0, _ROOT)
