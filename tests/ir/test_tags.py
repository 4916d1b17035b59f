"""Tags of calls and of what they decompose into."""

import torch

import thunder
from thunder.base.tags import OpTags
from thunder.ir.symbol import BoundSymbol, gather_tags, has_tags, with_parts
from thunder.passes.mutations import writes


def _calls():
    def program(x, y):
        y.add_(1)
        return torch.dropout(x @ y, 0.5, True).softmax(-1)

    compiled = thunder.jit(program)
    compiled(torch.ones(3, 3), torch.ones(3, 3))
    traces = thunder.last_traces(compiled)
    return [part for trace in (traces[0], traces[-1]) for part in with_parts(trace.bound_symbols)]


def _counted(bsym):
    """The tags by their definition."""
    return (
        frozenset(bsym.sym.tags) | bsym.own_tags | frozenset(t for s in bsym.subsymbols for t in _counted(s))
    )


def test_tags_are_those_of_a_call_and_of_all_below_it():
    calls = _calls()
    assert {OpTags.IN_PLACE, OpTags.RANDOM_OP, OpTags.MATMUL_OP} <= frozenset().union(
        *map(gather_tags, calls)
    )
    for call in calls:
        assert gather_tags(call) == _counted(call)
        assert writes(call) == has_tags(call, {OpTags.IN_PLACE}) == (OpTags.IN_PLACE in _counted(call))


def test_copies_of_calls_have_tags_of_their_own():
    for call in _calls():
        gather_tags(call)
        for copy in (
            call.from_bsym(tags={OpTags.DONT_DCE}),
            call.from_bsym(subsymbols=()),
            call.from_bsym(subsymbols=(*call.subsymbols, call.from_bsym(tags={OpTags.DEVICE_SYNC_OP}))),
            call.from_bsym(output=None),
        ):
            assert gather_tags(copy) == _counted(copy)


def test_tags_below_a_call_are_found_once(monkeypatch):
    calls = _calls()
    for call in calls:
        gather_tags(call)
    monkeypatch.setattr(BoundSymbol, "tags", property(lambda self: 1 / 0))
    assert [has_tags(call, {OpTags.IN_PLACE}) for call in calls].count(True) > 0


def test_a_registered_tag_is_an_attribute():
    assert OpTags.VIEW is vars(OpTags)["VIEW"] is OpTags.members["VIEW"]
    assert OpTags.register_tag("members") is OpTags.members.pop("members"), (
        "a name that the class has stays its own"
    )
