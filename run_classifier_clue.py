"""Runs run_classifier.py under albert_zh's name for CLUE tasks; see compat/."""

from compat import forward

if __name__ == "__main__":
    forward("run_classifier.py")
