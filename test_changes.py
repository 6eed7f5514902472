"""albert_zh's place of compat/test_changes.py."""

from compat import forward

if __name__ == "__main__":
    forward("compat/test_changes.py")
