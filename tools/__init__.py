"""Commands for developers and users that look into what the programs write, and convert it."""
