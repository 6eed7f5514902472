"""What all fine-tuning programs share."""
