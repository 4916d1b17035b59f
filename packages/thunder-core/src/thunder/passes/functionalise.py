"""Functionalisation: in-place writes become values, and what they do to views and inputs is made explicit.

Note [Functionalisation]
The user's program, and what the pass makes of it:

    def f(x):              y = x[0]
        y = x[0]           t1 = torch.add(y, 1)
        y.add_(1)          t2 = prims.copy_with_setitem(x, …, t1)          # y is a view of x
        z = x * 2          z = torch.mul(t2, 2)                            # x's memory holds t2 now
        return y, z        prims.copy_(t2, x, grad_enabled=False)          # the caller sees the write
                           t3 = x[0]                                       # y lies in x's memory still
                           return (t3, z)

Whether ``reshape``, ``contiguous`` and the like give a view is asked only where it makes a difference: if the
memory is written after the call, or if the result and something else of a written memory leave the program.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from thunder.base.errors import OperatorError, ThunderError, UnsupportedProgram
from thunder.base.structural_ids import RETURN
from thunder.ir.aliasing import DisjointSets, InputAlias, View, before_first_write, views_of
from thunder.ir.proxies import ProxyTag, TensorProxy
from thunder.ir.recorder import FixedLocation
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.substitution import substitute_in_tree, substitute_operands, substitute_outputs
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, get_tracectx, tracectx
from thunder.ops import prims
from thunder.ops.layouts import CONTIGUOUS_RESULTS, Layouts
from thunder.passes.mutations import COPY, flattened, primitives, writes
from thunder.passes.overlapping_inputs import groups_written
from thunder.passes.self_overlapping_writes import Overlaps
from thunder.passes.storage_versions import (
    Memories,
    Memory,
    Tensor,
    followed,
    insists_on_layout,
    passes_detach,
)


def functionalise(trace: TraceCtx) -> TraceCtx:
    """Removes in-place writes; those to inputs become ``prims.copy_(value, input)`` at the end.

    See Note [Functionalisation]. Returns the trace itself if it writes nothing. Raises UnsupportedProgram for
    a write that cannot be made right, and OperatorError for one that torch refuses, each with the user's
    line. ``trace.input_aliases``, if there, are the groups of inputs that overlap in memory.
    """
    if not any(map(writes, trace.bound_symbols)):
        return trace
    start = time.perf_counter_ns()
    new = from_trace(trace)
    recorder = FixedLocation()
    worker = _Functionaliser(trace, new, recorder)
    grad = any(b.kwargs["grad_enabled"] for b in worker.program if b.sym.id == COPY)
    with tracectx(new, recorder=recorder), torch.set_grad_enabled(grad):
        worker.run()
    new.provenance = TraceProvenance("Functionalisation", time.perf_counter_ns() - start)
    return new


def _claiming_grad(value: TensorProxy, proxy: TensorProxy) -> TensorProxy:
    """A value that requires grad if the tensor that holds it does: after ``x.zero_()`` torch's still requires
    grad, which is zero.
    """
    if value.requires_grad or not proxy.requires_grad:
        return value
    claiming = TensorProxy(like=value, requires_grad=True)
    trace = get_tracectx()
    assert trace is not None, "the pass records into a trace"
    trace.record(prims.shallow_copy.bind(value, output=claiming))
    return claiming


def _tensors(proxies: Iterable[Any]) -> list[TensorProxy]:
    return [p for p in proxies if isinstance(p, TensorProxy)]


class _Functionaliser:
    """The state of the pass over one trace."""

    def __init__(self, trace: TraceCtx, new: TraceCtx, recorder: FixedLocation) -> None:
        self.new, self.recorder = new, recorder
        calls = [list(flattened([bsym])) for bsym in trace.bound_symbols]
        self.program = [bsym for parts in calls for bsym in parts]
        #: for each part of the program, the number of the call that it is a part of
        self.call_of = [n for n, parts in enumerate(calls) for _ in parts]
        computed = (p for bsym in self.program for p in bsym.flat_proxy_outs)
        #: tensors that require grad only since they were written, as they were before
        self.first = before_first_write((*trace.args, *computed))
        new.args = substitute_in_tree(trace.args, self.first)
        self.inputs = {p.name: p for p in trace.args if isinstance(p, TensorProxy)}
        groups = trace.input_aliases
        self.layouts = Layouts(self.inputs.values(), self.program, groups)
        self.memories = Memories(new, self.first)
        self.overlaps = Overlaps(trace.bound_symbols, self.memories, self.layouts)
        #: input → whether a write to it entered torch's graph: under grad mode, and not behind a detach
        self.written_inputs: dict[str, bool] = {}
        #: values in which several elements may be one place in memory, of so many calls of the new trace
        self.stretched: set[str] = set()
        self.looked_through = 0
        #: memories that hold a value which may lie otherwise than they do
        self.unplaced: set[Memory] = set()
        #: results of which eager's layouts say that they are no views
        self.copies: set[str] = set()
        self.at = 0
        self._survey(groups)

    def _survey(self, groups: Any) -> None:
        """Families of tensors that may share memory: where each is written last, and what of it leaves the
        program.
        """
        families = self.families = DisjointSets()
        for bsym in self.program:
            for view in views_of(bsym):
                families.union(view.output.name, view.source.name)
        for group in groups:
            for alias in group[1:]:
                families.union(alias.proxy.name, group[0].proxy.name)
        self.last_write: dict[str, int] = {}
        self.leaving: dict[str, set[str]] = {}
        for name in self.inputs:
            self.leaving.setdefault(families.find(name), set()).add(name)
        for i, bsym in enumerate(self.program):
            if bsym.sym.id == COPY:
                self.last_write[families.find(bsym.args[1].name)] = i
            elif bsym.sym.id == RETURN:
                for p in bsym.flat_proxy_args:
                    self.leaving.setdefault(families.find(p.name), set()).add(p.name)
        for shared in groups_written(groups, self._is_written):
            self.memories.share(shared)

    def _is_written(self, proxy: TensorProxy) -> bool:
        """Whether the memory of a tensor may be written somewhere in the program."""
        return self.families.find(proxy.name) in self.last_write

    def _is_view(self, view: View, unchanged: bool) -> bool:
        """Whether an output is a view; eager's layouts are asked only if it makes a difference.

        ``unchanged`` says that the call stays as it was, on arguments that no write has replaced.
        """
        if view.certain:
            return True
        family = self.families.find(view.output.name)
        last = self.last_write.get(family)
        if last is None or (last < self.at and len(self.leaving.get(family, ())) < 2):
            return False
        found = self.layouts.share_memory(view.output, view.source)
        if not found and unchanged:
            self.copies.add(view.output.name)
        return found

    # -- the walk ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Emits the functional program into the new trace."""
        handlers = {COPY: self._write, RETURN: self._finish}
        for at, bsym in enumerate(self.program):
            self.at = at
            self.recorder.source = bsym.source
            try:
                handlers.get(bsym.sym.id, self._emit)(bsym)
            except ThunderError as error:
                error.add_locations(bsym.locations)
                raise

    def _emit(self, bsym: BoundSymbol) -> None:
        """A call that writes nothing, on the values that its arguments have now."""
        arguments = _tensors(bsym.flat_proxy_args)
        if any_requires_grad(bsym.flat_proxy_outs):
            for p in arguments:
                self._refuse_cut(p)
        for p in arguments:
            self._place(self.memories.of(p))
        current = {p.name: value for p in arguments if (value := self.memories.read(p)) is not p}
        views = views_of(bsym)
        results: dict[str, TensorProxy] = {}
        if current and any(map(insists_on_layout, views)):
            for view in views:
                self.layouts.of(
                    view.output
                )  # raises where eager does: its tensor does not lie as `view` needs
                results[view.output.name] = followed(view.path, current.get(view.source.name, view.source))
        else:
            self.new.record(substitute_outputs(substitute_operands(bsym, current), self.first))
        for view in views:
            if self._is_view(view, unchanged=not current):
                self.memories.add_view(view, bsym, results.get(view.output.name, view.output))

    def _write(self, bsym: BoundSymbol) -> None:
        """``copy_(value, target)``: the next version of the target's memory."""
        source, target = bsym.args
        self.overlaps.check(source, target, self.call_of[self.at])
        tensor, grad = self.memories.of(target), bsym.kwargs["grad_enabled"]
        chain = list(self.memories.chain(tensor))
        root = chain[-1].proxy
        if tensor.view is not None:
            self._place(tensor)
        detached = any(map(passes_detach, chain))
        value = self.memories.read(source)
        old = self.memories.read(root)
        # a value that was written where gradients are off may have one, of which the tensor knows nothing
        has_gradient = old.requires_grad and root.requires_grad
        if grad and not detached and root is not target and (has_gradient or value.requires_grad):
            self._refuse_view_of_leaf(root, tensor)
        if tensor.memory.shared is not None:
            shared_grad = any(m.proxy.requires_grad for m in tensor.memory.shared.members)
            if grad and (shared_grad or value.requires_grad):
                self._refuse_shared(tensor.memory.shared.members)
            tensor.memory.cut = tensor.memory.cut or shared_grad
        if ProxyTag.RECOMPUTE_IN_BACKWARD not in target.tags:  # the region's result is kept, whatever made it
            value.tags.discard(ProxyTag.RECOMPUTE_IN_BACKWARD)
        self.memories.write(tensor, value)
        self._give_each_element_a_place(chain)
        self._keep_layout(source, target, chain)
        if grad and not detached and has_gradient and not self._depends(chain[-1].value, old):
            self.memories.renew(chain[-1], prims.overwrite(chain[-1].value, old))
        if root.name in self.inputs:
            tracked = grad and not detached
            self.written_inputs[root.name] = tracked or self.written_inputs.get(root.name, False)
        if has_gradient and (detached or not grad):
            tensor.memory.cut = True
        if isinstance(bsym.output, TensorProxy):
            self.memories.same(bsym.output.name, tensor)

    def _depends(self, value: TensorProxy, old: TensorProxy) -> bool:
        """Whether a gradient flows from a value to another one. If not, one still reaches the old value in
        torch, which is zero.
        """
        producer = {p.name: bsym for bsym in self.new.bound_symbols for p in bsym.flat_proxy_outs}
        seen: set[str] = set()
        stack = [value]
        while stack and old.name not in seen:
            p = stack.pop()
            if p.requires_grad and p.name not in seen:
                seen.add(p.name)
                made_by = producer.get(p.name)
                stack += _tensors(made_by.flat_proxy_args) if made_by is not None else []
        return old.name in seen

    def _give_each_element_a_place(self, chain: list[Tensor]) -> None:
        """What a broadcast value was copied to holds each element once more, where the value repeats one."""
        for bsym in primitives(self.new.bound_symbols[self.looked_through :]):
            for view in views_of(bsym):
                if view.source.name in self.stretched or view.output.numel() > view.source.numel():
                    self.stretched.add(view.output.name)
        self.looked_through = len(self.new.bound_symbols)
        *views_between, root = chain
        if root.value.name in self.stretched:
            self.memories.renew(root, prims.clone(root.value))
        for tensor in views_between:
            if tensor.value.name in self.stretched:
                tensor.version = root.version - 1  # is made anew from its parent when it is read

    def _parts_before(self) -> list[BoundSymbol]:
        """What the call of which the present part is one has done so far."""
        first = self.at
        while first > 0 and self.call_of[first - 1] == self.call_of[self.at]:
            first -= 1
        return self.program[first : self.at]

    def _keep_layout(self, value: TensorProxy, target: TensorProxy, chain: list[Tensor]) -> None:
        """Mark what has other strides than eager's after a write, to be given eager's before it is read."""
        *views_between, root = chain
        if root.memory.shared is not None or self._follows(value, target, root):
            return
        made_by = self.new.bound_symbols[-1] if self.new.bound_symbols else None
        if made_by is None or made_by.sym is not prims.copy_with_setitem or made_by.output is not root.value:
            self.unplaced.add(root.memory)
            return
        for tensor in views_between:  # the root is a copy of itself; views of it are taken again
            if not (tensor.value.requires_grad and passes_detach(tensor)):
                tensor.version = root.version - 1

    def _follows(self, value: TensorProxy, target: TensorProxy, root: Tensor) -> bool:
        """Whether the written value has the order of strides of the target: it was computed from the target
        (``y.add_(1)``), or made for it (``y.normal_()``).
        """
        parts = self._parts_before()
        read = [p for bsym in parts for p in _tensors(bsym.flat_proxy_args)]
        if not any(out is value for bsym in parts for out in bsym.flat_proxy_outs):
            return False
        if read and not any(p.name == target.name for p in read):
            return False
        if not any(bsym.sym.id in CONTIGUOUS_RESULTS for bsym in parts):
            return True
        return root.proxy is target and self.layouts.is_plain(target)

    def _place(self, tensor: Tensor) -> None:
        """Before a memory is read: its value, as eager's lies."""
        if tensor.memory in self.unplaced:
            self.unplaced.discard(tensor.memory)
            root = self.memories.root(tensor)
            self.memories.renew(root, self._placed(root.proxy, self.memories.read(root.proxy)))

    def _refuse_view_of_leaf(self, root: TensorProxy, target: Tensor) -> None:
        """torch's refusals of writes through views; a write to the leaf itself is refused while tracing."""
        hint = "Write under torch.no_grad(), or use the out-of-place operator."
        is_leaf = root.requires_grad and root.name not in self.first and root.declared_leaf is not False
        if root.name in self.inputs and is_leaf:
            raise OperatorError(
                "a view of a leaf Variable that requires grad is being used in an in-place operation.",
                found={root.name: f'"{root.type_string()}"'},
                hint=hint,
            )
        call = target.call
        if call is not None and len(call.flat_proxy_outs) > 1:
            raise OperatorError(
                f"an output of {call.sym.name} is a view and is being modified inplace. This view is the "
                "output of a function that returns multiple views. Such functions do not allow the output "
                "views to be modified inplace. You should replace the inplace operation by an out-of-place "
                "one.",
                hint=hint,
            )

    def _refuse_shared(self, members: Iterable[InputAlias]) -> None:
        """Which element of which input has which gradient only torch's graph of their base can say."""
        raise UnsupportedProgram(
            "an input that overlaps another in memory is written where gradients are tracked",
            found={m.proxy.name: f'"{m.proxy.type_string()}"' for m in members},
            hint="Write under torch.no_grad(), or give the program clones.",
        )

    def _refuse_cut(self, proxy: TensorProxy) -> None:
        if self.memories.of(proxy).memory.cut:
            raise UnsupportedProgram(
                "a tensor that requires grad was written where gradients are off, and read where they are on",
                found={proxy.name: f'"{proxy.type_string()}"'},
                hint="Use an out-of-place operator, or do the write outside the compiled function.",
            )

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, bsym: BoundSymbol) -> None:
        """Writes back to inputs, and returns tensors that share memory where eager's do, and only there."""
        leaving = {p.name: self.memories.of(p) for p in _tensors(bsym.flat_proxy_args)}
        own = {n: t for n, t in leaving.items() if self.memories.root(t).proxy.name not in self.inputs}
        for tensor in own.values():
            if tensor.memory.version and tensor.proxy.requires_grad:
                self._refuse_cut(tensor.proxy)
        for name, tracked in self.written_inputs.items():
            if tracked:
                self._refuse_cut(self.inputs[name])
        values = self._values_leaving(own)
        back = self._last_values()
        for name, value in back.items():
            target = self.inputs[name]  # without a gradient, its last value may be of a write without one
            prims.copy_(value, target, grad_enabled=self.written_inputs[name] and target.requires_grad)
        taken: dict[str, TensorProxy] = {}
        for name, tensor in leaving.items():
            if name not in own and tensor.memory.version:
                values[name] = self._taken_from_input(tensor, taken)
        self.new.record(bsym.from_bsym(args=substitute_in_tree(bsym.args, values)))

    def _values_leaving(self, own: dict[str, Tensor]) -> dict[str, TensorProxy]:
        """The values of results that lie in no input's memory, each memory apart from the others.

        What a written tensor holds is whatever was written last: an input, maybe, or a view of another
        result.
        """
        together: dict[Memory, list[TensorProxy]] = {}
        for tensor in own.values():
            self._place(tensor)
            together.setdefault(tensor.memory, []).append(tensor.proxy)
        roots = self._roots_of_values()
        #: value → the memory that owns it, None for an input's
        owners: dict[str, Memory | None] = dict.fromkeys(self.inputs)
        values: dict[str, TensorProxy] = {}
        # Tensors that nobody writes come first: they stay what they are, and others are copied.
        for memory in sorted(together, key=lambda memory: self._is_written(together[memory][0])):
            if memory.version and self._shows_memory(together[memory]):
                self._join(self.memories.root(self.memories.of(together[memory][0])), roots, owners)
            for proxy in together[memory]:
                value = self.memories.read(proxy)
                owner = owners.setdefault(roots.get(value.name, value.name), memory)
                apart = owner is memory or not self._is_written(proxy)
                values[proxy.name] = _claiming_grad(value if apart else prims.clone(value), proxy)
        return values

    def _shows_memory(self, tensors: list[TensorProxy]) -> bool:
        """Whether the tensors must be views of one value: there are several, or one that is a part of its
        memory, with strides or an offset that a value of its own would not have.
        """
        if len(tensors) > 1:
            return True
        return self.memories.of(tensors[0]).view is not None and self.layouts.is_part(tensors[0])

    def _join(self, root: Tensor, roots: dict[str, str], owners: dict[str, Memory | None]) -> None:
        """Gives the root of a memory a value of its own, so that every tensor read from now on is a view of
        that one value.
        """
        value = self.memories.read(root.proxy)
        if roots.get(value.name, value.name) != value.name or value.name in owners:
            value = prims.clone(value)
        owners[value.name] = root.memory
        self.memories.renew(root, self._placed(root.proxy, value))

    def _placed(self, root: TensorProxy, value: TensorProxy) -> TensorProxy:
        """A value with its elements in the order in which eager has them, so that views of it are views."""
        strides = self.layouts.strides(root)
        ranked = sorted(range(len(strides)), key=lambda d: (strides[d], -d))
        order = tuple(ranked.index(d) for d in range(len(strides)))
        return prims.stride_order(value, order)  # type: ignore[no-any-return]

    def _roots_of_values(self) -> dict[str, str]:
        """For each value of the new trace, the one in whose memory it may lie when the trace runs."""
        roots: dict[str, str] = {}
        for bsym in self.new.bound_symbols:
            for view in views_of(bsym):
                if view.output.name not in self.copies:
                    roots[view.output.name] = roots.get(view.source.name, view.source.name)
        return roots

    def _last_values(self) -> dict[str, TensorProxy]:
        """input → the value to write back to it. One that lies in an input's memory is copied first: another
        write-back may change it.
        """
        roots = self._roots_of_values()
        back: dict[str, TensorProxy] = {}
        for name in self.inputs:
            if name in self.written_inputs:
                value = self.memories.read(self.inputs[name])
                if value is not self.inputs[name]:
                    inside = roots.get(value.name, value.name) in self.inputs
                    back[name] = prims.clone(value) if inside else value
        return back

    def _taken_from_input(self, tensor: Tensor, taken: dict[str, TensorProxy]) -> TensorProxy:
        """A tensor in an input's memory, after the write-back: the input itself, or a view taken now.
        ``taken`` has those taken before.
        """
        if tensor.view is None:
            return tensor.proxy
        if tensor.proxy.name not in taken:
            parent = self._taken_from_input(self.memories.of(tensor.view.source), taken)
            taken.update(self.memories.view_again(tensor, parent, as_written=True))
        return taken[tensor.proxy.name]
