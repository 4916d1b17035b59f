"""Runs the tests on another torch, small models on another transformers, and keeps what came of it.

    hatch run versions:record                    every folder of tests, on each torch of the matrix
    hatch run +torch=2.15 versions:record ir passes -n 2
    hatch run families:record                    small models, on each transformers of the matrix
    python -m tools.versions page [--check]      writes the tables, or compares them

What is recorded belongs to the torch, the transformers and the CPython that run it. A run of the same folder
replaces the run before it. docs/versions.md has the tables.
"""
