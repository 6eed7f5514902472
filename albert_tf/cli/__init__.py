"""The command line: turns absl flags into settings and runs programs."""
