"""Names of the activations, in configs and in those of Hugging Face.

TensorFlow is not imported; `ops.ACTIVATIONS` has the functions.
"""

# Name of an activation → its names in Hugging Face's configs: the first is written, all are read.
# () if Hugging Face does not have it.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "gelu": ("gelu_new", "gelu_pytorch_tanh", "gelu"),
    "relu": ("relu",),
    "tanh": ("tanh",),
    "linear": ("linear",),
}
