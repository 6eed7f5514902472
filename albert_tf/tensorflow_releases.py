"""What differs between the supported releases of TensorFlow, and what would break without care.

* 2.16 to 2.18: after `tf_keras.utils.set_random_seed`, layers draw their seeds by
  `randint(1, 1e9)`. Python 3.12 refuses the float (TypeError), older ones warn of it.
  `set_random_seed` in this file makes it an integer.
* 2.16, 2.17: they require NumPy 1, in which a float32 array and a float64 number make float32. What
  is computed in float64 is converted first. pyarrow refuses NumPy 1 from its release 26 on, so the
  extras of these releases require an older one.
* 2.16 to 2.19: they require protobuf 4 or 5, with which the module `sentencepiece_model_pb2` of
  sentencepiece cannot be imported from release 0.2.2 on. `sentencepiece_file.py` reads its files.
* 2.16, 2.17: tensorflow-text has no wheels for Python 3.12. Only what tokenizes in a graph
  requires it (`tensorflow_packages.require_text`).
* 2.21: TensorFlow no longer requires TensorBoard, whose summaries runs write, so this package does;
  and no release of tf-models-official requires it. A new MultiWorkerMirroredStrategy only needs one
  of its modules (`tensorflow_packages.require_model_garden`).

The numbers of a model differ between releases by rounding only (docs/install.md).
"""

from __future__ import annotations

import random

from albert_tf.tensorflow_packages import Release, installed_release

_SEEDS_ARE_INTEGERS: Release = (2, 19)  # from this release of tf_keras on


def set_random_seed(seed: int) -> None:
    """Seeds the generators of Python, NumPy, TensorFlow and Keras.

    This is `tf_keras.utils.set_random_seed`, whose numbers are the same in all releases.
    """
    import tf_keras

    tf_keras.utils.set_random_seed(seed)
    release = installed_release()
    if release is not None and release < _SEEDS_ARE_INTEGERS:
        # The releases that need this are final, so the private name stays.
        from tf_keras.src import backend

        backend._SEED_GENERATOR.generator = _GeneratorOfIntegers(seed)


class _GeneratorOfIntegers(random.Random):
    """A generator whose `randint` accepts floats with integer values."""

    def randint(self, a: float, b: float) -> int:
        """Returns an integer from `a` to `b`."""
        return super().randint(int(a), int(b))
