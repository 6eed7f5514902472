"""Exports of models to SavedModel and TFLite, and inference with OpenVINO."""
