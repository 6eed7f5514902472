"""Exports of models to SavedModel, TF-Hub's format and TFLite, and inference with OpenVINO."""
