"""Kinds of descriptors and modules that the tracing policy distinguishes."""

from __future__ import annotations

import types

import torch

from thunder.base.cache_queries import CACHED

#: descriptors that make methods
METHODS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
    CACHED,
)
DICT_GETTERS = (types.GetSetDescriptorType, types.MemberDescriptorType)  # the second of modules
#: torch's namespaces of operators
LAZY = frozenset({torch._ops._Ops, torch._ops._OpNamespace, torch._ops.OpOverloadPacket})
