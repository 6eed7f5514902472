"""Names of the poolings that compute text embeddings. This module does not import TensorFlow."""

MEAN, MEAN_LAST_4, POOLED = POOLINGS = ("mean", "mean_last_4", "pooled")
