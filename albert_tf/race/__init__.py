"""Multiple choice: RACE and data of the same form."""
