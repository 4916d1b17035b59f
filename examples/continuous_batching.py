"""Continuous batching: requests join and leave a running batch between two steps of a model.

The scheduling is done in the event loop alone; a thread of its own runs the model, one step after the other.
Pages that a cancelled request gives back during a step are handed out only after it.

Source: Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models" (2022).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paged_llama import Batch, PagePool, PageSizes, Piece, make_batch


class Refused(Exception):
    """A request that cannot be served; the text says why."""


class TooLong(Refused):
    """A request asks for more tokens than the model, or the cache, has room for."""


class QueueFull(Refused):
    """As many requests wait as may."""


class Stopped(Refused):
    """The engine has stopped; the cause is the error of the step that stopped it, if there is one."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an engine takes on at once; `context` is the model's."""

    context: int
    running: int = 64
    waiting: int = 256
    #: rows of a step: generated tokens first, then as much of new prompts as fits
    rows: int = 128

    def __post_init__(self) -> None:
        if min(self.context, self.running, self.waiting) < 1 or self.rows < self.running:
            raise ValueError(f"{self}: limits are positive, and a step has a row for each running request")


@dataclass(eq=False)
class Request:
    """A prompt, and the tokens generated after it."""

    number: int
    tokens: list[int]
    limit: int
    temperature: float
    generator: torch.Generator
    #: the pages that it has, and how many of its tokens are in them
    pages: list[int] = field(default_factory=list)
    cached: int = 0
    generated: int = 0
    done: bool = False
    events: asyncio.Queue[int | Refused | None] = field(default_factory=asyncio.Queue)

    @property
    def pending(self) -> int:
        """How many of its tokens are not in the cache: one while it generates."""
        return len(self.tokens) - self.cached

    async def stream(self) -> AsyncIterator[int]:
        """Iterate over the tokens as they are generated, until the last or until the request is cancelled.

        Raises :class:`Stopped` when the engine stops before.
        """
        while (event := await self.events.get()) is not None:
            if isinstance(event, Refused):
                raise event
            yield event


class Engine:
    """Serves requests with a model that adds tokens to a paged cache.

    `step` is the model, called with the tensors of a :class:`Batch`; it returns logits of shape
    `(requests, vocabulary)`. With `fixed`, all batches have the sizes of the limits, as captured graphs need;
    otherwise the sizes of what there is, at least 2.
    """

    def __init__(
        self,
        step: Callable[..., Tensor],
        sizes: PageSizes,
        limits: Limits,
        *,
        device: torch.device | None = None,
        fixed: bool = False,
    ) -> None:
        self.step, self.sizes, self.limits = step, sizes, limits
        self.device = device or torch.device("cpu")
        width = min(sizes.needed(limits.context), sizes.count)
        self.least = (limits.rows, 1 + limits.running, width) if fixed else (2, 2, 2)
        self.pool = PagePool(sizes)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.steps = self.preemptions = self.accepted = 0
        self._stopped: Stopped | None = None
        self._work = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

    # -- what clients call -----------------------------------------------------------------------------

    def submit(self, prompt: list[int], *, limit: int, temperature: float = 0.0, seed: int = 0) -> Request:
        """Queue a prompt, after which at most `limit` tokens are generated; a temperature of 0 is greedy.

        Raises ValueError for a prompt without tokens, a limit below 1 and a temperature that is negative or
        not finite, :class:`TooLong`, :class:`QueueFull` or :class:`Stopped`.
        """
        if not prompt or limit < 1 or not 0 <= temperature < float("inf"):
            raise ValueError(
                "a prompt has a token, a limit is at least 1, a temperature is finite and not negative"
            )
        if self._stopped is not None:
            raise self._stopped
        total, room = len(prompt) + limit, min(self.limits.context, self.sizes.count * self.sizes.size)
        if total > room:
            raise TooLong(
                f"a prompt of {len(prompt)} tokens and {limit} more are {total}; there is room for {room}"
            )
        if len(self.waiting) >= self.limits.waiting:
            raise QueueFull(f"{len(self.waiting)} requests wait; try again later")
        generator = torch.Generator(self.device).manual_seed(seed)
        self.accepted += 1
        request = Request(self.accepted, list(prompt), limit, temperature, generator)
        self.waiting.append(request)
        self._work.set()
        return request

    def cancel(self, request: Request) -> None:
        """End a request and give its pages back; one that has ended stays as it is."""
        if not request.done:
            self._end(request, None)

    async def warm_up(self) -> None:
        """Run one step without a request, which compiles the model."""
        await self._run({})

    async def serve(self) -> None:
        """Run steps until cancelled; what ends it ends all requests with :class:`Stopped`."""
        reason = Stopped("the server is shutting down")
        try:
            while True:
                pieces = self._plan()
                if not pieces:
                    self._work.clear()
                    await self._work.wait()
                    continue
                self._deliver(pieces, await self._run(pieces))
        except Exception as error:
            reason = Stopped(f"a step of the model failed: {error}")
            reason.__cause__ = error
            raise
        finally:
            self._stopped = reason
            for request in (*self.running, *self.waiting):
                self._end(request, reason)
            self._thread.shutdown(wait=False)

    # -- between two steps -----------------------------------------------------------------------------

    def _end(self, request: Request, event: Refused | None) -> None:
        """Take a request out of the engine, and tell its client."""
        request.done = True
        (self.running if request in self.running else self.waiting).remove(request)
        self._release(request)
        request.events.put_nowait(event)

    def _release(self, request: Request) -> None:
        """Give the pages of a request back: nothing of it is in the cache any longer."""
        self.pool.give_back(request.pages)
        request.pages, request.cached = [], 0

    def _plan(self) -> dict[Request, int]:
        """Choose how many tokens of which requests the next step adds, with pages for them."""
        while self.waiting and len(self.running) < self.limits.running:
            if self.sizes.needed(self.waiting[0].pending) > len(self.pool) - self._promised():
                break  # the first that waits is the first that starts
            self.running.append(self.waiting.popleft())
        pieces: dict[Request, int] = {}
        rows = self.limits.rows
        for request in sorted(self.running, key=lambda r: r.pending > 1):  # generated tokens first
            count = min(request.pending, rows)
            if count and self._grow(request, count, pieces):
                pieces[request] = count
                rows = self.limits.rows - sum(pieces.values())
        return pieces

    def _promised(self) -> int:
        """How many pages the prompts of running requests will need beside those that they have."""
        return sum(max(self.sizes.needed(len(r.tokens)) - len(r.pages), 0) for r in self.running)

    def _grow(self, request: Request, count: int, pieces: dict[Request, int]) -> bool:
        """Give a request pages for `count` more tokens; False where it had to leave for older requests.

        Where none is free the youngest request goes back to the queue, and is computed again later: its
        tokens stay, the pages with their keys and values do not.
        """
        if request not in self.running:
            return False
        while len(request.pages) < self.sizes.needed(request.cached + count):
            if len(self.pool):
                request.pages.append(self.pool.take())
                continue
            youngest = self.running.pop()
            self._release(youngest)
            pieces.pop(youngest, None)
            self.waiting.appendleft(youngest)
            self.preemptions += 1
            if youngest is request:
                return False
        return True

    async def _run(self, pieces: dict[Request, int]) -> list[int]:
        """Run a step in the model's thread; the result has a token for each request."""
        parts = [
            Piece(request.tokens[request.cached : request.cached + count], request.cached, request.pages)
            for request, count in pieces.items()
        ]
        batch = make_batch(parts, self.device, self.least)
        # a part of a prompt that is not its end draws nothing: the draws of a request depend on it alone
        draws = [r if r.temperature > 0 and r.pending == count else None for r, count in pieces.items()]
        self.steps += 1
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._compute, batch, draws)

    @torch.no_grad()
    def _compute(self, batch: Batch, draws: list[Request | None]) -> list[int]:
        """The likeliest token after each request, or one that its generator draws."""
        logits = self.step(*batch)[1 : 1 + len(draws)]
        tokens: list[int] = logits.argmax(dim=-1).tolist()
        for n, request in enumerate(draws):
            if request is not None:
                weights = torch.softmax(logits[n] / request.temperature, dim=-1)
                tokens[n] = int(torch.multinomial(weights, 1, generator=request.generator))
        return tokens

    def _deliver(self, pieces: dict[Request, int], tokens: list[int]) -> None:
        """Hand the tokens of a step to the requests that are still there, and end those that have enough."""
        for (request, count), token in zip(pieces.items(), tokens, strict=True):
            if request.done:
                continue
            request.cached += count
            if request.pending:
                continue
            request.tokens.append(token)
            request.generated += 1
            request.events.put_nowait(token)
            if request.generated == request.limit:
                self._end(request, None)
