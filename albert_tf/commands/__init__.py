"""What is called from the shell: a module with `main` for each command.

The scripts in the repository's root folder and in `tools/` call them, and so do the commands that
an installed package has, such as `albert-run-classifier`.
"""
