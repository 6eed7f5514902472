"""Names of the poolings: how the outputs for the tokens of a text become its embedding.

TensorFlow is not imported; exports compute them.
"""

MEAN = "mean"  # of the last layer
MEAN_LAST_4 = "mean_last_4"  # of the last four layers
POOLED = "pooled"  # the output of the pooler, at [CLS]
CLS = "cls"  # the output of the last layer at [CLS]
MAX = "max"  # of the last layer, the largest number over the tokens
EXPORTED_POOLINGS = (MEAN, MEAN_LAST_4, POOLED)
POOLINGS = (*EXPORTED_POOLINGS, CLS, MAX)
EMBEDDING = "embedding"  # output of an export: what all modules of sentence-transformers compute
