"""albert_zh's name for run_pretraining.py; see compat/."""

from compat import forward

if __name__ == "__main__":
    forward("run_pretraining.py")
