"""Which blocks of a decoder are in which stage of a pipeline, and which parameters on which rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .decoders import Decoder
from .mesh_layouts import MeshLayout

__all__ = ["RankParts", "blocks_of_stages", "parts_of_ranks"]


@dataclass(frozen=True)
class RankParts:
    """What a rank of a pipeline has: blocks, and whether it has the embedding and the head."""

    blocks: int
    has_embedding: bool
    has_head: bool

    def parameters(self, decoder: Decoder, tensor: int) -> float:
        """Return the number of parameters of a device of a tensor-parallel group; norms are whole in each."""
        count = self.blocks * block_parameters(decoder, tensor)
        if self.has_head:
            count += decoder.width + decoder.embedding / tensor
        if self.has_embedding and not (self.has_head and decoder.tied):
            count += decoder.embedding / tensor
        return count


def block_parameters(decoder: Decoder, tensor: int) -> float:
    """Return the parameters that a device of a tensor-parallel group has of a block."""
    return decoder.products / tensor + 2 * decoder.width


@lru_cache(maxsize=1024)
def blocks_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Return the number of blocks of each stage.

    They differ by one at most. The first and the last stage, which have embedding and head, are among those
    with fewer, as in Llama 3 (Grattafiori et al., 2024, section 3.3.2).
    """
    fewest, more = divmod(layers, stages)
    middle_first = sorted(range(stages), key=lambda stage: (-min(stage, stages - 1 - stage), stage))
    counts = [fewest] * stages
    for stage in middle_first[:more]:
        counts[stage] += 1
    return tuple(counts)


def parts_of_ranks(decoder: Decoder, layout: MeshLayout) -> tuple[RankParts, ...]:
    """Return what each rank of a pipeline has; stage s is on rank s % ranks."""
    ranks = layout.pipeline
    blocks = blocks_of_stages(decoder.layers, ranks * layout.stages)
    return tuple(
        RankParts(sum(blocks[rank::ranks]), has_embedding=rank == 0, has_head=rank == ranks - 1)
        for rank in range(ranks)
    )
