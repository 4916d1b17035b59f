"""Where a compiled call may differ from eager's in `errors_as_eager`, reviewed: entry, case, reason.

Entries and cases are regular expressions for whole names.
"""

from __future__ import annotations

from typing import Final

DIFFERENCES: Final[tuple[tuple[str, str, str], ...]] = (
    (".*", r"\d+ meta(, grad)?", "some of torch's kernels compute with a tensor that has no data"),
)
