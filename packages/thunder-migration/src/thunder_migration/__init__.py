"""Names that users of lightning-thunder write, with the same meaning: the plugin that adds them to thunder.

`names` is the table of all of them; the other modules define what thunder-core has under no name. They are
reached through the paths of the table (`thunder.core.utils.check`), not through this package.
"""

from importlib import import_module

from thunder.plugins import NamesOfModules, hookimpl

__all__ = ["thunder_names"]


@hookimpl
def thunder_names() -> NamesOfModules:
    """Add the names of the table."""
    table = import_module("thunder_migration.names")
    return {**table.NAMES, **table.ABSENT_MODULES}
