"""The table of faulty executors, which the conformance tests must find, with all of its entries."""

from __future__ import annotations

from testing import (
    faults_of_claims,
    faults_of_compilers,
    faults_of_fusions,
    faults_of_gradients,
    faults_of_kernels,
    faults_of_numbers,
    faults_of_packages,
    faults_of_programs,
    faults_of_regions,
    faults_of_results,
    faults_of_state,
)
from testing.fault_table import FAULTS, NOT_FOUND, Fault

__all__ = ["FAULTS", "NOT_FOUND", "Fault"]

#: the modules of faults
MODULES = (
    faults_of_results,
    faults_of_claims,
    faults_of_state,
    faults_of_gradients,
    faults_of_fusions,
    faults_of_kernels,
    faults_of_numbers,
    faults_of_programs,
    faults_of_regions,
    faults_of_compilers,
    faults_of_packages,
)
