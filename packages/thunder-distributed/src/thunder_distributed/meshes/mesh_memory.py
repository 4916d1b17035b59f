"""The memory of a device in a layout, by what it is for (in bytes).

    P   parameters of the device's blocks, embedding and head, divided by `tensor`; norms are whole
    S   devices that share them: shards * context, 1 for ddp
    t   tokens of a microbatch on the device: microbatch * length / context
    T   tensor;  w, q, k, h, V  widths of values, queries, keys, feed-forward network, vocabulary

What a block saves for the backward is what thunder's programs save: the results of products and attention,
and values between blocks; results of norms and activations are computed again. With tensor parallelism the
gathered inputs of products are saved, too.
"""

from __future__ import annotations

from dataclasses import replace

from .decoders import Decoder
from .mesh_layouts import ITEMSIZE, MeshLayout, Training
from .stages_of_ranks import RankParts, block_parameters, parts_of_ranks

__all__ = ["memory_of_layout", "memory_of_rank", "saved_by_block"]


def saved_by_block(decoder: Decoder, layout: MeshLayout, training: Training) -> float:
    """Return the bytes that a block saves of a microbatch.

    none       t (2 w + 2 q + 2 k + 2 h) / T, and 2 t w of gathered inputs if T > 1
    products   the same without gathered inputs
    blocks     t w / T, the input of the block

    With fused attention, a float32 for each query is saved, too.
    """
    tokens = layout.microbatch * training.length // layout.context
    item, tensor = ITEMSIZE[training.dtype], layout.tensor
    between = tokens * decoder.width / tensor
    if layout.checkpointing == "blocks":
        return item * between
    products = (
        tokens * (2 * decoder.queries + 2 * decoder.keys + (1 + decoder.gated) * decoder.hidden) / tensor
    )
    gathered = 2 * tokens * decoder.width if tensor > 1 and layout.checkpointing == "none" else 0
    return item * (2 * between + products + gathered) + 4 * tokens * decoder.heads / tensor


def microbatches_saved(layout: MeshLayout, rank: int, microbatches: int) -> int:
    """Return the most microbatches of a stage whose activations a rank saves at a time.

    1F1B: p - r of rank r of p; interleaved: (v - 1) p + 2 (p - r) - 1 (Narayanan et al., 2021); zero bubble:
    p (Qi et al., 2023); never more than there are.
    """
    ranks, stages = layout.pipeline, layout.stages
    if layout.schedule == "interleaved":
        return min((stages - 1) * ranks + 2 * (ranks - rank) - 1, microbatches * stages)
    return min(ranks if layout.schedule == "zero bubble" else ranks - rank, microbatches)


def memory_of_rank(
    decoder: Decoder, layout: MeshLayout, training: Training, rank: int, parts: RankParts
) -> dict[str, float]:
    """Return the bytes of a rank of a pipeline by category.

    parameters    P / S  (ddp: P) of `training.parameters`; the optimizer has `optimizer_tensors` of that size
    gathered      copies for products: zero2: P; zero3: two blocks, or a block and the head; ddp: P, if they
                  have another dtype
    gradients     P / S of `training.gradients`, and one block; P for ddp, and for zero2 with several
                  microbatches, whose gradients are added up before they are communicated
    activations   saved by a block * blocks of a stage * microbatches that wait for their backward; if blocks
                  are computed again, one block's all
    logits        2 t V / T in `training.dtype`, and t V / T in float32
    """
    item, tensor = ITEMSIZE[training.dtype], layout.tensor
    count, sharers = parts.parameters(decoder, tensor), layout.sharers
    microbatches = layout.microbatches(training.batch)
    block = block_parameters(decoder, tensor)
    tokens = layout.microbatch * training.length // layout.context
    head = decoder.embedding / tensor if parts.has_head else 0
    memory = {"parameters": ITEMSIZE[training.parameters] * count / sharers}
    memory["optimizer"] = training.optimizer_tensors * memory["parameters"]
    if layout.sharding == "zero3":
        memory["gathered"] = item * (block + max(block, head))
    elif layout.sharding == "zero2" or training.dtype != training.parameters:
        memory["gathered"] = item * count
    else:
        memory["gathered"] = 0.0
    gradients = ITEMSIZE[training.gradients] * count
    if layout.sharding == "zero3" or (layout.sharding == "zero2" and microbatches == 1):
        gradients = gradients / sharers + ITEMSIZE[training.gradients] * max(block, head)
    memory["gradients"] = gradients
    of_stage = -(-parts.blocks // layout.stages)
    saved = saved_by_block(decoder, layout, training)
    memory["activations"] = min(
        saved * of_stage * microbatches_saved(layout, rank, microbatches),
        saved * parts.blocks * microbatches,
    )
    if layout.checkpointing != "none":
        memory["activations"] += (
            saved_by_block(decoder, replace(layout, checkpointing="none"), training) - saved
        )
    memory["logits"] = tokens * decoder.vocabulary / tensor * (2 * item + 4) if parts.has_head else 0.0
    return memory


def memory_of_layout(decoder: Decoder, layout: MeshLayout, training: Training) -> dict[str, float]:
    """Return the bytes of the rank that needs the most.

    Of ranks with the same parts, that is the first one, which waits the longest for its backwards.
    """
    first: dict[RankParts, int] = {}
    for rank, parts in enumerate(parts_of_ranks(decoder, layout)):
        first.setdefault(parts, rank)
    rows = [memory_of_rank(decoder, layout, training, rank, parts) for parts, rank in first.items()]
    return max(rows, key=lambda row: sum(row.values()))
