"""albert_zh's place of compat/similarity.py."""

from compat import forward
from compat.similarity import BertSim

__all__ = ["BertSim"]

if __name__ == "__main__":
    forward("compat/similarity.py")
