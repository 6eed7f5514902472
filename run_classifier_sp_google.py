"""Runs run_classifier.py under albert_zh's name for Google's checkpoints; see compat/."""

from compat import forward

if __name__ == "__main__":
    forward("run_classifier.py", "--max_seq_length=512", "--num_train_epochs=3")
