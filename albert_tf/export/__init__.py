"""What a model is written as, besides the checkpoints of a run: one table of formats.

* A model's weights: for the programs of Google and this package, for Hugging Face's transformers,
  and for TensorFlow Hub (`weights`, `hub_module`); `convert` is the program.
* What a model computes: SavedModels, TFLite, ONNX and OpenVINO. What it takes and returns is a
  `signatures.Export`, among them those of raw strings (`text_graph`), which a task makes, or
  `embeddings` of a model that was not fine-tuned.
"""
