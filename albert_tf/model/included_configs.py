"""The configs that are included in this package, such as `albert_base`."""

from albert_tf import files


def config_file(path: str) -> str:
    """Returns the path of a config, given a path or the name of a config of this package.

    >>> import os
    >>> os.path.basename(config_file("albert_base"))
    'albert_base.json'
    >>> config_file("my_model/albert_config.json")
    'my_model/albert_config.json'

    Args:
        path: a file, or a name such as `albert_base`. An existing file takes precedence.

    Raises:
        FileNotFoundError: a name without a dot or slash is neither a file nor a config of this
            package. The message lists the names.
    """
    return files.find_included(path, "config", "configs", ".json")
