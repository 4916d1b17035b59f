"""Tests of thunder-triton run in processes of their own, since Triton reads its variable when imported."""

from __future__ import annotations

import os

#: the variable that `test_triton_processes` sets for the tests of a folder
FOLDER = os.environ.get("THUNDER_TRITON_TESTS", "")

collect_ignore_glob = [f"{name}/*" for name in ("interpreted", "compiled") if name != FOLDER]
