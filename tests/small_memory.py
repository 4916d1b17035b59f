"""A plugin of pytest: values of any size give their memory to later ones, as large ones do by default.

    hatch run sweep small-memory

The programs of most tests are small; with it they judge Note [Memory that is reused] too.
"""

from __future__ import annotations

import pytest

from thunder.passes.placed_writes import own_memory

#: tests of what is printed, counted or allocated, which is other with it
OTHERS = (
    "test_composites_that_read_replaced_values_are_not_decomposed",
    "test_the_sample_of_the_print_format",
    "test_dels_follow_the_last_use_and_names_are_the_users",
    "test_each_saved_tensor_is_freed_after_its_last_use_in_the_backward",
    "test_intermediates_of_the_backward_live_as_long_as_eagers",
    "test_the_sample_prints_as_it_is_documented",
    "test_the_stages_of_a_training_compile_are_on_record",
)


def pytest_configure(config: pytest.Config) -> None:
    """Let the smallest value count."""
    own_memory.SMALLEST = 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that see which memory is used."""
    for item in items:
        if item.name.startswith(OTHERS):
            item.add_marker(pytest.mark.skip(reason="sees which memory is used"))
