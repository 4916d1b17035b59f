"""Stages in one dimension of a mesh of four processes, another distribution in the other one."""

from __future__ import annotations

from functools import partial

from distributed.launching import CASES
from distributed.pipeline_cases import KINDS, on_a_mesh

NAMES = [(kind, schedule) for kind in KINDS for schedule in ("1f1b", "zero bubble")]
CASES.update({f"pipeline {kind}, {schedule}": partial(on_a_mesh, kind, schedule) for kind, schedule in NAMES})
