"""Names of the poolings: how the outputs for the tokens of a text become its embedding.

TensorFlow is not imported; exports compute them.
"""

MEAN = "mean"  # of the last layer
MEAN_LAST_4 = "mean_last_4"  # of the last four layers
POOLED = "pooled"  # the output of the pooler, at [CLS]
POOLINGS = (MEAN, MEAN_LAST_4, POOLED)
