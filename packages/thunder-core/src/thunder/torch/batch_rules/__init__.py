"""Batching rules of functions of torch, a module for each subject: values of ``Operator.batch``."""
