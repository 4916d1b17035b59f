"""Kinds of callables and descriptors that the tracer tells apart."""

from __future__ import annotations

import types

import torch

from thunder.frontend.natives import native_calls

#: descriptors that make methods
METHODS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
    native_calls.CACHED,
)
DICT_GETTERS = (types.GetSetDescriptorType, types.MemberDescriptorType)  # the second of modules
#: torch's namespaces of operators
LAZY = frozenset({torch._ops._Ops, torch._ops._OpNamespace, torch._ops.OpOverloadPacket})
#: types of callables that an operator may stand for
SYMBOL_LIKE = frozenset(
    {
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.MethodWrapperType,
        types.GetSetDescriptorType,
        type,
        type(torch.Tensor),
        type(torch.Generator),
        torch._ops.OpOverload,
        torch._ops.OpOverloadPacket,
    }
)
