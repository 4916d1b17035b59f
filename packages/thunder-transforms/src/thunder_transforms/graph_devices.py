"""The capture and replay of a function's kernels as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

__all__ = ["CudaGraphs", "GraphDevice", "restored"]

#: runs of a function before it is captured, in which libraries allocate and choose kernels
WARM_UP_RUNS = 3


@contextmanager
def restored(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Give tensors the elements back that they have at the beginning of the context."""
    copies = [t.clone() for t in tensors]
    yield
    for t, elements in zip(tensors, copies, strict=True):
        t.copy_(elements)


class GraphDevice(Protocol):
    """A kind of device on which functions are captured."""

    #: the device type of tensors whose calls are captured
    type: str

    def capture(
        self,
        fn: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor] = (),
    ) -> tuple[Callable[[], None], Sequence[torch.Tensor]]:
        """Return a function that runs `fn(*inputs)` again, and the tensors that hold its results then.

        The first results are there after the first replay. `written` are the inputs to which `fn` writes;
        they have the same elements after a capture as before (`restored`).
        """


class CudaGraphs:
    """CUDA graphs, by `torch.cuda.CUDAGraph`.

    Args:
        share_mem_pool: whether all graphs allocate from one pool of memory.
    """

    type = "cuda"

    def __init__(self, share_mem_pool: bool = False) -> None:
        self.share_mem_pool = share_mem_pool
        self._pool: Any = None

    def capture(
        self,
        fn: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor] = (),
    ) -> tuple[Callable[[], None], Sequence[torch.Tensor]]:
        device = inputs[0].device if inputs else None
        with torch.cuda.device(device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_RUNS):
                    with restored(written):
                        fn(*inputs)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._shared_pool()):
                outputs = tuple(fn(*inputs))
        return _Replay(graph), outputs

    def _shared_pool(self) -> Any:
        if self.share_mem_pool and self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool


class _Replay:
    """Replays a graph. A replay on another stream than the last one waits for that."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._stream: Any = None

    def __call__(self) -> None:
        stream = torch.cuda.current_stream()
        if self._stream is not None and self._stream != stream:
            stream.wait_stream(self._stream)
        self._graph.replay()
        self._stream = stream
