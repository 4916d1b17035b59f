"""Whole models, compiled as their authors wrote them and judged by eager PyTorch."""

import pytest

pytest.register_assert_rewrite(f"{__name__}.contract", "comparison.results")
