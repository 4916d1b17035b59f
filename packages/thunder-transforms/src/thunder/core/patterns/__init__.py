"""Patterns and what replaces them: sequences of calls, and rules written as Python functions."""

from functools import partial

from thunder.plugins import missing_name
from thunder_transforms.rewriting.call_sequences import Match, Pattern
from thunder_transforms.rewriting.replacement import apply_rewrites
from thunder_transforms.rewriting.rewrite_rules import RewriteRule, rewrite
from thunder_transforms.rewriting.rewrite_transform import Rewrites
from thunder_transforms.rewriting.rewriting_result import Rewriting

__all__ = ["Match", "Pattern", "RewriteRule", "Rewrites", "Rewriting", "apply_rewrites", "rewrite"]

__getattr__ = partial(missing_name, __name__)
