"""The server's tokens are the model's without a cache; whatever ends a request, its pages come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import aiohttp
import pytest
import torch
from aiohttp.test_utils import TestClient, TestServer
from torch import Tensor

import serve_load
import thunder
from continuous_batching import Engine, Limits, Request, Stopped, TooLong
from llama import Llama, LlamaConfig
from paged_llama import Batch, PagedLlama, PagePool, PageSizes, Piece, make_batch
from serve import application, build_model, compile_step
from thunder_transforms.cuda_graphs import CUDAGraphTransform
from transforms.test_cuda_graphs import Recorded

CONTEXT = 48
PROMPTS = [
    b"a",
    b"the second prompt",
    b"third",
    b"a prompt of several pages, in pieces",
    b"fifth one",
    b"xyz",
]
EAGER, COMPILED = "eager", "compiled"


def tiny_llama() -> Llama:
    """A model whose likeliest tokens differ from step to step."""
    torch.manual_seed(0)
    config = LlamaConfig(layers=2, width=16, heads=4, groups=2, hidden=32, context=CONTEXT, tied_head=False)
    model = Llama(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.normal_(std=0.4)
    return model


def likeliest(model: Llama, prompt: bytes, count: int) -> list[int]:
    """What the model generates without a cache and without a batch."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


def engine_of(model: Callable[..., Tensor], *, pages: int = 64, size: int = 4, **limits: int) -> Engine:
    """An engine of the tiny model."""
    return Engine(model, PageSizes(count=pages, size=size), Limits(context=CONTEXT, **limits))


def paged(kind: str, *, pages: int = 64, size: int = 4) -> Any:
    """The tiny model with pages, compiled or not."""
    model = PagedLlama(tiny_llama(), PageSizes(count=pages, size=size))
    return model if kind == EAGER else compile_step(model, ["torch"])


def assert_nothing_is_lost(engine: Engine) -> None:
    """All pages are free, and no request is left."""
    assert len(engine.pool) == engine.sizes.count
    assert not engine.running
    assert not engine.waiting


async def collect(request: Request) -> list[int]:
    """All tokens of a request."""
    return [token async for token in request.stream()]


def served(engine: Engine, program: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine beside the engine."""

    async def main() -> Any:
        task = asyncio.create_task(engine.serve())
        try:
            return await asyncio.wait_for(program(), timeout=120)
        finally:
            task.cancel()
            await asyncio.wait([task])

    return asyncio.run(main())


# -- the engine ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EAGER, COMPILED])
@pytest.mark.parametrize(
    ("pages", "limits"),
    [
        (64, {}),
        (64, {"running": 2, "rows": 5}),  # prompts in pieces of at most five tokens
        (14, {"rows": 64}),  # too few pages for all at once: some are computed twice
    ],
    ids=["all at once", "in pieces", "few pages"],
)
def test_tokens_of_a_batch_that_changes_are_those_of_each_request_alone(
    kind: str, pages: int, limits: dict[str, int]
) -> None:
    step = paged(kind, pages=pages)
    engine, model, counts = engine_of(step, pages=pages, **limits), tiny_llama(), [12, 3, 1, 9, 7, 5]

    async def program() -> list[list[int]]:
        first = [engine.submit(list(p), limit=n) for p, n in zip(PROMPTS[:3], counts[:3], strict=True)]
        begun = await anext(first[0].stream())
        later = [engine.submit(list(p), limit=n) for p, n in zip(PROMPTS[3:], counts[3:], strict=True)]
        found = await asyncio.gather(*map(collect, [*first, *later]))
        return [[begun, *found[0]], *found[1:]]

    found = served(engine, program)
    assert found == [likeliest(model, p, n) for p, n in zip(PROMPTS, counts, strict=True)]
    assert len({token for tokens in found for token in tokens}) > 10, "the tokens differ"
    assert (engine.preemptions > 0) == (pages == 14)
    assert_nothing_is_lost(engine)
    if kind == COMPILED:
        assert thunder.cache_misses(step) == 1
        assert thunder.cache_hits(step) == engine.steps - 1 > 10


def test_drawn_tokens_depend_on_the_seed_and_not_on_the_company() -> None:
    def drawn(engine: Engine, company: int, seed: int = 1) -> Any:
        async def program() -> list[int]:
            others = [engine.submit(list(p), limit=12, temperature=0.7, seed=9) for p in PROMPTS[:company]]
            found = await collect(engine.submit(list(b"sample"), limit=16, temperature=0.7, seed=seed))
            await asyncio.gather(*map(collect, others))
            return found

        return served(engine, program)

    alone = drawn(engine_of(paged(EAGER)), 0)
    assert alone == drawn(engine_of(paged(EAGER)), 4)
    few = engine_of(paged(EAGER, pages=14), pages=14)
    assert alone == drawn(few, 4)
    assert few.preemptions
    assert alone != drawn(engine_of(paged(EAGER)), 0, seed=2)
    assert alone != likeliest(tiny_llama(), b"sample", 16)


@pytest.mark.parametrize("moment", ["waiting", "running"])
def test_a_cancelled_request_ends_and_gives_its_pages_back(moment: str) -> None:
    engine = engine_of(paged(EAGER), running=1)

    async def program() -> tuple[list[int], list[int]]:
        requests = [engine.submit(list(p), limit=30) for p in PROMPTS[:2]]
        await anext(requests[0].stream())
        victim, other = requests if moment == "running" else reversed(requests)
        engine.cancel(victim)
        engine.cancel(victim)  # one that has ended stays as it is
        return await collect(victim), await collect(other)

    of_victim, of_other = served(engine, program)
    assert len(of_victim) < 29
    prompt = PROMPTS[1] if moment == "running" else PROMPTS[0]
    assert of_other == likeliest(tiny_llama(), prompt, 30)[-len(of_other) :]
    assert len(of_other) == (30 if moment == "running" else 29)
    assert_nothing_is_lost(engine)


@pytest.mark.parametrize("pages", [64, 5])
def test_a_request_that_does_not_fit_is_refused_and_one_that_just_fits_is_served(pages: int) -> None:
    engine = engine_of(paged(EAGER, pages=pages), pages=pages)
    room = min(CONTEXT, 4 * pages)

    async def program() -> list[int]:
        with pytest.raises(TooLong, match=f"a prompt of 9 tokens and .* there is room for {room}"):
            engine.submit([1] * 9, limit=room - 8)
        return await collect(engine.submit([1] * 9, limit=room - 9))

    assert served(engine, program) == likeliest(tiny_llama(), bytes([1] * 9), room - 9)
    assert_nothing_is_lost(engine)


def test_a_step_that_fails_ends_all_requests_with_its_error() -> None:
    step = paged(EAGER)

    def failing(*batch: Tensor) -> Tensor:
        if len(batch[0]) == 3:
            raise RuntimeError("out of memory")
        logits: Tensor = step(*batch)
        return logits

    engine = engine_of(failing, running=3)

    async def program() -> list[Any]:
        first = engine.submit(list(b"a"), limit=9)
        await anext(first.stream())
        others = [engine.submit(list(b"a"), limit=9) for _ in range(3)]
        found = await asyncio.gather(*map(collect, [first, *others]), return_exceptions=True)
        with pytest.raises(Stopped, match="out of memory"):
            engine.submit([1], limit=1)
        return found

    for error in served(engine, program):
        assert isinstance(error, Stopped)
        assert str(error.__cause__) == "out of memory"
    assert_nothing_is_lost(engine)


def test_a_page_is_given_back_once() -> None:
    pool = PagePool(PageSizes(count=2))
    pages = [pool.take(), pool.take()]
    assert sorted(pages) == [1, 2]
    with pytest.raises(IndexError, match="pop from empty list"):
        pool.take()
    pool.give_back(pages)
    with pytest.raises(KeyError, match=str(pages[0])):
        pool.give_back(pages[:1])


# -- a GPU's graphs ------------------------------------------------------------------------------------------


def fixed_batch(engine: Engine) -> Batch:
    """The tensors of a step of fixed sizes."""
    return make_batch([Piece([1, 2], 0, [1])], engine.device, engine.least)


def test_on_a_gpu_the_step_is_captured_with_its_writes_to_the_cache() -> None:
    step = paged(EAGER)
    engine = Engine(step, step.sizes, Limits(context=CONTEXT, running=3, rows=8), fixed=True)
    assert [tuple(t.shape) for t in fixed_batch(engine)] == [(8,), (8,), (8,), (4, 12), (4,)]
    graphs = CUDAGraphTransform()
    thunder.plan(step, *fixed_batch(engine), device="h100", executors=["torch"], transforms=[graphs])
    (plan,) = graphs.plans
    reasons = [refused.reason for refused in plan.refused]
    assert reasons == []
    captured = [bsym.sym.name for region in plan.regions for bsym in region.bsyms]
    assert captured.count("scaled_dot_product_attention") == 2
    assert captured.count("linear") == 2 * 7 + 1
    assert captured.count("index_put_in_place") == 4, "keys and values of two layers"
    assert len(plan.regions) == 1


def test_captured_steps_of_fixed_sizes_generate_the_same_tokens() -> None:
    device = Recorded()
    step = compile_step(paged(EAGER), ["torch"], CUDAGraphTransform(device=device))
    engine = Engine(step, PageSizes(count=64, size=4), Limits(context=CONTEXT, running=3, rows=8), fixed=True)

    async def program() -> list[list[int]]:
        return await asyncio.gather(*(collect(engine.submit(list(p), limit=6)) for p in PROMPTS))

    assert served(engine, program) == [likeliest(tiny_llama(), p, 6) for p in PROMPTS]
    assert thunder.cache_misses(step) == 1
    assert device.captures == sum(len(plan.regions) for plan in thunder.list_transforms(step)[0].plans) > 0
    assert_nothing_is_lost(engine)


# -- the server ----------------------------------------------------------------------------------------------


def over_http(engine: Engine, program: Callable[[TestClient[Any, Any]], Awaitable[Any]]) -> Any:
    """Run a coroutine with a client of the engine's server."""

    async def main() -> Any:
        server = TestServer(application(engine), handler_cancellation=True)
        async with TestClient(server) as client:
            found = await asyncio.wait_for(program(client), timeout=120)
            while engine.running or engine.waiting:  # a client that left is noticed in the next turn
                await asyncio.sleep(0.01)
            return found

    found = asyncio.run(main())
    assert_nothing_is_lost(engine)
    return found


def events_of(text: str) -> list[dict[str, Any]]:
    """The objects of server-sent events."""
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n") if event]


def test_tokens_and_their_text_are_streamed() -> None:
    async def program(client: TestClient[Any, Any]) -> list[dict[str, Any]]:
        response = await client.post("/generate", json={"prompt": "The", "tokens": 9})
        assert response.headers["Content-Type"] == "text/event-stream"
        return events_of(await response.text())

    first, *tokens, last = over_http(engine_of(paged(EAGER)), program)
    expected = likeliest(tiny_llama(), b"The", 9)
    assert first == {"id": 1}
    assert [event["token"] for event in tokens] == expected
    assert last["done"]
    text = "".join(event["text"] for event in (*tokens, last))
    assert text == bytes(expected).decode(errors="replace")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ("{", 400, "the body is not JSON"),
        ("[]", 400, "the body is an object with the fields prompt, tokens, temperature, seed"),
        ('{"prompt": "a", "top": 1}', 400, "the body is an object with the fields"),
        ('{"tokens": 1}', 400, "prompt is of type str, not None"),
        ('{"prompt": ""}', 400, "a prompt has a character"),
        ('{"prompt": "a", "tokens": 0}', 400, "tokens is at least 1"),
        ('{"prompt": "a", "tokens": true}', 400, "tokens is of type int, not True"),
        ('{"prompt": "a", "temperature": NaN}', 400, "a temperature is finite"),
        ('{"prompt": "a", "temperature": -1}', 400, "not negative"),
        ('{"prompt": "a", "tokens": 1, "seed": 99999999999999999999}', 400, "a seed has 64 bits"),
        (
            '{"prompt": "a", "tokens": 99}',
            413,
            "a prompt of 1 tokens and 99 more are 100; there is room for 48",
        ),
    ],
)
def test_a_request_that_is_not_right_is_refused_with_the_reason(body: str, status: int, text: str) -> None:
    async def program(client: TestClient[Any, Any]) -> tuple[int, str]:
        response = await client.post("/generate", data=body)
        return response.status, (await response.json())["error"]

    found = over_http(engine_of(paged(EAGER)), program)
    assert found[0] == status
    assert text in found[1]


@pytest.mark.parametrize("moment", ["waiting", "running"])
def test_a_client_that_leaves_cancels_its_request(moment: str) -> None:
    engine = engine_of(paged(EAGER), running=1)

    async def program(client: TestClient[Any, Any]) -> list[dict[str, Any]]:
        bodies = [{"prompt": p.decode(), "tokens": 30} for p in PROMPTS[:2]]
        responses = [await client.post("/generate", json=body) for body in bodies]
        left, stays = responses if moment == "running" else reversed(responses)
        left.close()
        return events_of(await stays.text())

    _, *tokens, last = over_http(engine, program)
    assert last["done"]
    prompt = PROMPTS[1] if moment == "running" else PROMPTS[0]
    assert [event["token"] for event in tokens] == likeliest(tiny_llama(), prompt, 30)


def test_a_request_is_cancelled_from_elsewhere_and_a_full_queue_refuses() -> None:
    engine = engine_of(paged(EAGER), running=1, waiting=1)

    async def program(client: TestClient[Any, Any]) -> None:
        running = await client.post("/generate", json={"prompt": "a", "tokens": 40})
        while not engine.running:
            await asyncio.sleep(0.001)
        waiting = await client.post("/generate", json={"prompt": "b", "tokens": 40})
        refused = await client.post("/generate", json={"prompt": "c", "tokens": 40})
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert await refused.json() == {"error": "1 requests wait; try again later"}
        for response, number in ((running, 1), (waiting, 2)):
            answer = await client.delete(f"/generate/{number}")
            assert await answer.json() == {"cancelled": number}
            assert events_of(await response.text())[-1]["cancelled"]
        missing = await client.delete("/generate/1")
        assert (missing.status, await missing.json()) == (404, {"error": "there is no request 1"})
        stats = await (await client.get("/stats")).json()
        assert (stats["free"], stats["running"], stats["waiting"], stats["accepted"]) == (64, 0, 0, 2)

    over_http(engine, program)


def test_the_page_asks_for_what_the_server_has() -> None:
    async def program(client: TestClient[Any, Any]) -> str:
        return await (await client.get("/")).text()

    page = over_http(engine_of(paged(EAGER)), program)
    assert 'fetch("generate", { method: "POST"' in page
    for field in ("prompt", "tokens", "temperature", "seed"):
        assert f'id="{field}"' in page


def test_clients_at_once_get_the_tokens_of_eager_with_one_compile() -> None:
    """The load generator's clients, against both servers in this process."""
    sizes = PageSizes(count=96, size=8)
    model = build_model(1, sizes)
    compiled = compile_step(deepcopy(model), ["torch"])
    clients = serve_load.bodies(clients=24, requests=2, tokens=12)
    rounds = []
    for step in (model, compiled):
        engine = Engine(step, sizes, Limits(context=256, running=16, rows=32))

        async def program(client: TestClient[Any, Any]) -> serve_load.Round:
            return await serve_load.load(str(client.make_url("/")), clients)

        rounds.append(over_http(engine, program))
    assert [a.tokens for a in rounds[0].answers] == [a.tokens for a in rounds[1].answers]
    assert rounds[1].stats["compiles"] == thunder.cache_misses(compiled) == 1
    assert all(0 < a.first <= a.last <= r.seconds for r in rounds for a in r.answers)


def test_an_answer_that_ends_early_is_an_error_of_the_load_generator() -> None:
    engine = engine_of(paged(EAGER), running=1)

    async def program(client: TestClient[Any, Any]) -> None:
        async def cancels() -> None:
            while not engine.running:
                await asyncio.sleep(0.001)
            engine.cancel(engine.running[0])

        async with aiohttp.ClientSession(str(client.make_url("/"))) as session:
            with pytest.raises(RuntimeError, match=r"ended with \{'cancelled': True"):
                await asyncio.gather(serve_load.ask(session, {"prompt": "a", "tokens": 40}), cancels())

    over_http(engine, program)


def test_percentiles() -> None:
    assert [serve_load.percentile(range(1, 101), p) for p in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert serve_load.percentile([3.0], 50) == 3.0
