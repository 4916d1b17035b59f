"""Data types: one object each, equal to torch's."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from thunder.base import dtypes
from thunder.base.errors import InvalidArgument

SHORT_NAMES = [
    *("b8", "ui8", "ui16", "ui32", "ui64", "i8", "i16", "i32", "i64"),
    *("bf16", "f16", "f32", "f64"),
    *("f8_e4m3fn", "f8_e4m3fnuz", "f8_e5m2", "f8_e5m2fnuz", "f8_e8m0fnu", "f4_e2m1fn_x2"),
    *("c32", "c64", "c128"),
    *(["bc32"] if hasattr(torch, "bcomplex32") else []),
]


def test_short_names_are_those_that_traces_print() -> None:
    assert [d.shortname() for d in dtypes.all_dtypes] == SHORT_NAMES


@pytest.mark.parametrize("d", dtypes.all_dtypes, ids=repr)
def test_dtype_equals_and_hashes_as_its_torch_dtype(d: dtypes.dtype) -> None:
    t = dtypes.to_torch_dtype(d)
    assert d == t
    assert t == d
    assert hash(d) == hash(t)
    assert {t: 1}[d] == 1
    assert sum(d == other for other in dtypes.all_dtypes) == 1


@pytest.mark.parametrize("d", dtypes.all_dtypes, ids=repr)
def test_dtype_is_one_object_through_conversion_copy_and_pickle(d: dtypes.dtype) -> None:
    assert dtypes.to_dtype(d) is d
    assert dtypes.to_dtype(dtypes.to_torch_dtype(d)) is d
    assert copy.deepcopy(d) is d
    assert pickle.loads(pickle.dumps(d)) is d
    assert repr(d) == f"thunder.dtypes.{d.name}"
    assert getattr(dtypes, d.name) is d


@pytest.mark.parametrize("d", dtypes.all_dtypes, ids=repr)
def test_kind_predicates_agree_with_torch(d: dtypes.dtype) -> None:
    t = dtypes.to_torch_dtype(d)
    assert d.is_floating_point == t.is_floating_point
    assert d.is_complex == t.is_complex
    assert d.is_signed == t.is_signed
    assert d.itemsize == t.itemsize
    assert d.is_bool + d.is_integer + d.is_floating_point + d.is_complex == 1
    assert d.is_inexact == (t.is_floating_point or t.is_complex)


@pytest.mark.parametrize("python_type", [bool, int, float, complex])
def test_python_number_type_means_what_it_means_to_torch(python_type: type) -> None:
    assert dtypes.to_torch_dtype(python_type) == torch.zeros(1, dtype=python_type).dtype


def test_object_with_a_dtype_gives_it() -> None:
    assert dtypes.to_dtype(torch.ones(1, dtype=torch.bfloat16)) is dtypes.bfloat16


def test_unknown_dtype_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'float32'"):
        dtypes.to_dtype("torch.float23")
    with pytest.raises(InvalidArgument, match="not a data type"):
        dtypes.to_dtype(torch.qint8)
    with pytest.raises(InvalidArgument, match="None is not a data type"):
        dtypes.to_dtype(None)
    with pytest.raises(InvalidArgument, match="<class 'str'> is not a data type"):
        dtypes.to_dtype(str)
