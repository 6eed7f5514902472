"""See `typings/tensorflow`."""

from tensorflow.autograph import experimental as experimental
