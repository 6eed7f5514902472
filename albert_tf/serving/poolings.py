"""How the embedding of a text is made of the outputs of an encoder. TensorFlow is not imported."""

MEAN, MEAN_LAST_4, POOLED = POOLINGS = ("mean", "mean_last_4", "pooled")
