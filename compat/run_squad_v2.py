"""Google's name for run_squad.py on SQuAD 2.0."""

from compat import forward

if __name__ == "__main__":
    forward("run_squad.py", "--version_2_with_negative")
