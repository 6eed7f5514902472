"""Pre-training: from records to losses and metrics."""
