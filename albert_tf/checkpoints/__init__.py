"""Checkpoints of every family of ALBERT: found, recognized, loaded, written."""
