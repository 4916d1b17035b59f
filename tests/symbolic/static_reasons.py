"""Reads why a program was compiled for the sizes of its call."""

import thunder


def failure_of(compiled):
    """Return why a compile with symbols has failed; None if it has not, even if it needs a value."""
    reason = thunder.compile_stats(compiled).last_static_reason
    return None if reason is None or "the program needs the value of" in str(reason) else reason
