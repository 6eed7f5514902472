"""Training and evaluation of any task, on any devices."""
