"""Runs compat/test_changes.py, at its location in albert_zh."""

from compat import forward

if __name__ == "__main__":
    forward("compat/test_changes.py")
