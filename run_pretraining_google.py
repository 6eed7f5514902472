"""Runs run_pretraining.py under albert_zh's name; see compat/."""

from compat import forward

if __name__ == "__main__":
    forward("run_pretraining.py")
