"""Runs run_squad.py under Google's name for SQuAD 1.1."""

from compat import forward

if __name__ == "__main__":
    forward("run_squad.py", "--noversion_2_with_negative")
