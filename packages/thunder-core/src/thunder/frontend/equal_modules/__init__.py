"""Modules that equal one which was read before (Note [Equal modules] in ``equal_calls``)."""
