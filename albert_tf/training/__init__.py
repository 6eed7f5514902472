"""Training and evaluation for any task on any device."""
