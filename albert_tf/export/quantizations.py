"""How the weights of a TFLite model are stored. Settings have these names without TensorFlow."""

NONE = "none"  # float32
FLOAT16 = "float16"
INT8 = "int8"  # dynamic-range quantization
QUANTIZATIONS = (NONE, FLOAT16, INT8)
