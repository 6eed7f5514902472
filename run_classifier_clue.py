"""albert_zh's name for run_classifier.py on the tasks of CLUE; see compat/."""

from compat import forward

if __name__ == "__main__":
    forward("run_classifier.py")
