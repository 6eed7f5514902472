"""Runs compat/similarity.py, at its location in albert_zh."""

from compat import forward
from compat.similarity import BertSim

__all__ = ["BertSim"]

if __name__ == "__main__":
    forward("compat/similarity.py")
