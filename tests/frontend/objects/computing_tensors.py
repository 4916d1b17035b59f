"""Tensors that compute by themselves: subclasses with ``__torch_dispatch__`` and ``__torch_function__``."""

import torch
from torch.utils._pytree import tree_map

aten = torch.ops.aten


class Scaled(torch.Tensor):
    """Numbers with a scale for each row; what is computed of them is plain, but for views and copies."""

    @staticmethod
    def __new__(cls, numbers, scale, requires_grad=False):
        shape, options = numbers.shape, {"dtype": scale.dtype, "requires_grad": requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, shape, device=numbers.device, **options)

    def __init__(self, numbers, scale, requires_grad=False):
        self.numbers, self.scale, self.block = numbers, scale, 4
        self.config = CONFIG

    @classmethod
    def from_plain(cls, x, levels=8):
        scale = x.abs().amax(1, keepdim=True) / levels
        return cls((x / scale).round(), scale)

    def dequantize(self):
        return self.numbers * self.scale

    @property
    def largest(self):
        return self.dequantize().abs().max()

    def __tensor_flatten__(self):
        return ["numbers", "scale"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Scaled(parts["numbers"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (aten.detach.default, aten.alias.default, aten.clone.default):
            return cls(func(args[0].numbers), func(args[0].scale))
        if func is aten._to_copy.default:
            return cls(args[0].numbers, func(args[0].scale, **kwargs))
        if func is aten.mul.Tensor and isinstance(args[0], cls) and not isinstance(args[1], torch.Tensor):
            return cls(args[0].numbers, args[0].scale * args[1])
        if func is aten.copy_.default and isinstance(args[0], cls):
            new = args[1].dequantize() if isinstance(args[1], cls) else args[1]
            args[0].numbers.copy_(new / args[0].scale)
            return args[0]
        if func is aten.mul_.Tensor:
            args[0].scale.mul_(args[1])
            return args[0]
        plain = tree_map(lambda x: x.dequantize() if isinstance(x, cls) else x, (tuple(args), kwargs or {}))
        return func(*plain[0], **plain[1])


class Config:
    def __init__(self):
        self.factor, self.names = 2.0, ["a", "b"]


CONFIG = Config()


class Pair(torch.Tensor):
    """Two tensors; each operator runs on both."""

    @staticmethod
    def __new__(cls, first, second):
        return torch.Tensor._make_wrapper_subclass(
            cls, first.shape, dtype=first.dtype, device=first.device, requires_grad=first.requires_grad
        )

    def __init__(self, first, second):
        self.first, self.second = first, second

    def __tensor_flatten__(self):
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Pair(parts["first"], parts["second"])

    def __repr__(self):
        return f"Pair({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def run(name):
            part = tree_map(
                lambda x: getattr(x, name) if isinstance(x, Pair) else x, (tuple(args), kwargs or {})
            )
            return func(*part[0], **part[1])

        first, second = run("first"), run("second")
        if func.name().endswith("_") or func.name().split(".")[0].endswith("_"):
            return args[0]
        if isinstance(first, torch.Tensor):
            return Pair(first, second)
        if isinstance(first, (list, tuple)):
            return type(first)(
                Pair(a, b) if isinstance(a, torch.Tensor) else a for a, b in zip(first, second, strict=True)
            )
        return first


class Logged(torch.Tensor):
    """Writes the name of each operator to a list, and unwraps for good when it is told to."""

    @staticmethod
    def __new__(cls, inner, log):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner, log):
        self.inner, self.log = inner, log

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        logs = [a.log for a in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(a, cls)]
        logs[0].append(str(func))
        plain = tree_map(lambda x: x.inner if isinstance(x, cls) else x, (tuple(args), kwargs or {}))
        result = func(*plain[0], **plain[1])
        return tree_map(lambda x: cls(x, logs[0]) if isinstance(x, torch.Tensor) else x, result)


class Masked(torch.Tensor):
    """Data with a mask, by ``__torch_function__`` and ``__torch_dispatch__``."""

    @staticmethod
    def __new__(cls, data, mask):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)

    def __init__(self, data, mask):
        self._data, self.mask = data, mask

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.relu:
            return cls(args[0]._data.relu(), args[0].mask)
        if func in (torch.sum, torch.Tensor.sum):
            return (args[0]._data * args[0].mask).sum()
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        masks = [a.mask for a in torch.utils._pytree.tree_leaves(args) if isinstance(a, cls)]
        plain = tree_map(lambda x: x._data if isinstance(x, cls) else x, (tuple(args), kwargs or {}))
        result = func(*plain[0], **plain[1])
        if isinstance(result, torch.Tensor) and result.shape == masks[0].shape:
            return cls(result, masks[0])
        return result


def scaled(seed=0, rows=4, columns=4, requires_grad=False):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-9, 9, (rows, columns), generator=generator).float()
    return Scaled(numbers, torch.linspace(0.1, 0.2, rows).unsqueeze(1), requires_grad)


def pair(seed=0, rows=4, columns=4, requires_grad=False):
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(rows, columns, generator=generator) for _ in range(2)]
    result = Pair(*parts)
    return result.requires_grad_() if requires_grad else result


def described(value):
    """Return a value as what can be compared: a tensor of such a class with its class and its parts."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            flags = type(value).__qualname__, str(value.dtype), str(value.layout), value.requires_grad
            if isinstance(value, (Scaled, Pair, Logged, Masked)):
                parts = {k: v for k, v in vars(value).items() if isinstance(v, torch.Tensor)}
                return *flags, {k: described(v) for k, v in parts.items()}
            if type(value) is torch.masked.MaskedTensor:
                return *flags, described(value.get_data()), described(value.get_mask())
            if value.is_nested:
                return *flags, [described(part) for part in value.unbind()]
            if value.is_quantized:
                return (
                    *flags,
                    value.int_repr().tolist(),
                    value.q_scale() if value.qscheme() in (torch.per_tensor_affine,) else None,
                )
            if value.layout is not torch.strided:
                return *flags, described(value.to_dense())
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                return *flags, value.as_subclass(torch.Tensor).detach().clone()
            return *flags, value.detach().clone()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(v) for v in value]
    if isinstance(value, dict):
        return {k: described(v) for k, v in value.items()}
    if isinstance(value, (int, float, str, bool, type(None), torch.dtype, torch.Size, torch.layout, type)):
        return value
    return repr(type(value))


def plain_sum(value):
    """Return the sum of all tensors that require grad in a value, as a plain tensor."""
    total = torch.zeros(())
    for leaf in torch.utils._pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            leaf = leaf.to_dense() if leaf.layout not in (torch.strided, torch.jagged) else leaf
            total = total + _numbers(leaf).float().square().sum()
    return total


class _Unwrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.first * 1

    @staticmethod
    def backward(ctx, g):
        return Pair(g, g * 2)


def _numbers(x):
    return _Unwrap.apply(x) if isinstance(x, Pair) else x
