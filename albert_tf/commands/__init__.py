"""The command-line programs, one module with a function `main` for each.

The scripts in the root folder of the repository and in `tools/` call these functions, and so do the
console commands of an installed package, such as `albert-run-classifier`.
"""
