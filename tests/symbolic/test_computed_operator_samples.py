"""Torch's samples of the operators whose sizes depend on data, each with other data of the same shapes."""

import pytest
import torch

import thunder
from symbolic.operator_samples import ENTRIES, samples
from thunder.base.pytree import tree_iter, tree_map

#: entry → the least number of its samples in which the computation finds the size
NAMES = {
    "nonzero": 5,
    "nonzero_static": 0,
    "argwhere": 5,
    "masked_select": 5,
    "unique": 8,
    "unique_consecutive": 8,
    "bincount": 5,
    "repeat_interleave": 2,
    "index_put": 0,
    "where": 0,
    "__getitem__": 1,
}


def _varied(tree, keep):
    """Return a sample of which elements of integers, truth values and numbers are others."""

    def vary(x):
        if not isinstance(x, torch.Tensor) or not x.numel():
            return x
        if x.dtype is torch.bool:
            return ~x
        flat = x.flatten()
        return torch.where(torch.arange(len(flat)) % 3 == keep, flat[:1], flat).reshape(x.shape)

    return tree_map(vary, tree)


def _strided(tree):
    return [(tuple(t.shape), t.stride()) for t in tree_iter(tree) if isinstance(t, torch.Tensor)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(NAMES.keys() & ENTRIES.keys()))
def test_samples_with_other_data_are_eagers(name):
    op, found = ENTRIES[name], 0
    for args, kwargs in samples(op):
        compiled = thunder.jit(op.op, cache="symbolic values", executors=[])
        for call in ((args, kwargs), _varied((args, kwargs), 0), _varied((args, kwargs), 1)):
            try:
                expected = op.op(*call[0], **call[1])
            except (RuntimeError, IndexError) as error:
                with pytest.raises(type(error), match=r"(?s)."):
                    compiled(*call[0], **call[1])
                continue
            actual = compiled(*call[0], **call[1])
            torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
            assert _strided(actual) == _strided(expected)
        stats = thunder.compile_stats(compiled)
        if stats.last_entry is not None:
            found += any("_with_size" in str(e.computation_traces[0]) for e in stats.interpreter_cache)
    assert found >= NAMES[name]
