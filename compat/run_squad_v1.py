"""Google's name for run_squad.py on SQuAD 1.1."""

from compat import forward

if __name__ == "__main__":
    forward("run_squad.py", "--noversion_2_with_negative")
