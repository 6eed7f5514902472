"""Text in, records of pre-training instances out; imports no TensorFlow."""
