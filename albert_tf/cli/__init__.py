"""From command line flags to runs; the only part that knows absl flags."""
