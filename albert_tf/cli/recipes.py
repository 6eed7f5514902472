"""The recipes that are included in this package: flag files such as `glue_mrpc`."""

from albert_tf import files


def recipe_file(path: str) -> str:
    """Returns the path of a flag file, given a path or the name of a recipe of this package.

    Args:
        path: a file, or a name such as `glue_mrpc`. An existing file takes precedence.

    Raises:
        FileNotFoundError: a name without a dot or slash is neither a file nor a recipe of this
            package. The message lists the names.
    """
    return files.find_included(path, "recipe", "configs/recipes", ".flags")
