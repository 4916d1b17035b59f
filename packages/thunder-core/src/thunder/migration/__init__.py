"""Names that users of lightning-thunder write, with the same meaning.

`names` is the table of all of them; the other modules define what no other folder of thunder has. They are
reached through the paths of the table (`thunder.core.utils.check`), not through this folder.
"""
