"""Test models and benchmarks of thunder.

`thunder.benchmarks.targets` and `thunder.tests.lit_gpt_model` are the documented import paths;
`python -m thunder_benchmarks` prints the tables.
"""
