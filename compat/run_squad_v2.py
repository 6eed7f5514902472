"""Runs run_squad.py under Google's name for SQuAD 2.0."""

from compat import forward

if __name__ == "__main__":
    forward("run_squad.py", "--version_2_with_negative")
