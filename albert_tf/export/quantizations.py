"""How the weights of an exported model are stored. Settings have the names without TensorFlow."""

NONE = "none"  # float32
FLOAT16 = "float16"
INT8 = "int8"  # and activations quantized on the fly: dynamic-range quantization
QUANTIZATIONS = (NONE, FLOAT16, INT8)
# Of quantized weights: the largest difference of an output, as a share of its largest number.
TOLERANCE = 0.2
