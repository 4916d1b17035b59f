"""Patterns and what replaces them: sequences of calls, and rules written as Python functions."""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.ir.patterns import Match, Pattern
from thunder.ir.rewrite_rules import RewriteRule, rewrite
from thunder.passes.rewriting.replacement import apply_rewrites
from thunder.passes.rewriting.rewrite_transform import Rewrites
from thunder.passes.rewriting.rewriting_result import Rewriting

__all__ = ["Match", "Pattern", "RewriteRule", "Rewrites", "Rewriting", "apply_rewrites", "rewrite"]

__getattr__ = partial(missing_name, __name__)
