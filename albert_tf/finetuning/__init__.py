"""The engine and the tools that all fine-tuning programs share."""
