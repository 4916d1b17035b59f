# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "thunder-core", "aiohttp>=3.12"]
# ///
"""A small server of a compiled Llama: continuous batching over a paged cache, tokens streamed to a page.

hatch run serve [--eager] [--port 8080] [--layers 4] [--pages 256] [--running 64] [--waiting 256]

    curl -N localhost:8080/generate -d '{"prompt": "Once", "tokens": 20}'

`POST /generate` takes a JSON object with `prompt` (text), `tokens` (how many, 64), `temperature` (0 is
greedy) and `seed`, and answers with server-sent events: `{"id": …}`, a `{"token": …, "text": …}` for each
token, and `{"done": true, …}` or `{"cancelled": true, …}`. A client that leaves cancels its request, and
`DELETE /generate/ID` cancels it from elsewhere. Errors are JSON, `{"error": …}`: 400 for fields that are not
right, 413 for a prompt that is too long, 503 for a queue that is full. `GET /stats` counts pages, requests,
steps and compiles.

The model has random weights, or trained ones: `hatch run demo --save llama.pt`, then `--weights llama.pt`.
Its tokens are bytes. On a GPU all steps have the same sizes, and graphs of thunder-transforms capture them.
"""

from __future__ import annotations

import argparse
import asyncio
import codecs
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import torch
from aiohttp import web

import thunder
from continuous_batching import Engine, Limits, QueueFull, Refused, Request, TooLong
from llama import Llama, LlamaConfig
from paged_llama import PagedLlama, PageSizes

PAGE = Path(__file__).with_name("serve.html")
ENGINE = web.AppKey("engine", Engine)
REQUESTS = web.AppKey("requests", dict[int, Request])
#: the fields of a request, with their types and what they are if they are left out
FIELDS: dict[str, tuple[tuple[type, ...], Any]] = {
    "prompt": ((str,), None),
    "tokens": ((int,), 64),
    "temperature": ((int, float), 0.0),
    "seed": ((int,), 0),
}


def build_model(layers: int, sizes: PageSizes, weights: Path | None = None) -> PagedLlama:
    """The model with weights of a file or of seed 0, for inference."""
    torch.manual_seed(0)
    model = Llama(LlamaConfig(layers=layers)).eval()
    if weights is not None:
        model.load_state_dict(torch.load(weights, weights_only=True))
    return PagedLlama(model, sizes).requires_grad_(False)


def compile_step(model: PagedLlama, executors: list[str] | None = None, *graphs: thunder.Transform) -> Any:
    """The compiled step: one program for all sizes, or one for fixed sizes, whose calls graphs capture."""
    if graphs:
        return thunder.jit(model, executors=executors, transforms=graphs)
    return thunder.jit(model, executors=executors, cache="symbolic values")


# -- HTTP -----------------------------------------------------------------------------------------------


def refusal(status: int, text: str, **headers: str) -> web.Response:
    """An answer that says what is wrong."""
    return web.json_response({"error": text}, status=status, headers=headers)


def read_fields(text: str) -> dict[str, Any]:
    """The fields of a request's body; raises ValueError, which names what is wrong."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict) or not body.keys() <= FIELDS.keys():
        raise ValueError(f"the body is an object with the fields {', '.join(FIELDS)}")
    fields = {name: body.get(name, default) for name, (_, default) in FIELDS.items()}
    for name, (types, _) in FIELDS.items():
        if not isinstance(fields[name], types) or isinstance(fields[name], bool):
            raise ValueError(f"{name} is of type {types[-1].__name__}, not {fields[name]!r}")
    if not fields["prompt"] or fields["tokens"] < 1:
        raise ValueError("a prompt has a character, and tokens is at least 1")
    if not (math.isfinite(fields["temperature"]) and fields["temperature"] >= 0):
        raise ValueError("a temperature is finite and not negative")
    if not -(2**63) <= fields["seed"] < 2**63:
        raise ValueError("a seed has 64 bits")
    return fields


async def generate(http: web.Request) -> web.StreamResponse:
    """Stream the tokens of a request."""
    engine = http.app[ENGINE]
    try:
        fields = read_fields(await http.text())
        prompt = list(fields["prompt"].encode())
        options = {"temperature": fields["temperature"], "seed": fields["seed"]}
        request = engine.submit(prompt, limit=fields["tokens"], **options)
    except ValueError as error:
        return refusal(400, str(error))
    except TooLong as error:
        return refusal(413, str(error))
    except QueueFull as error:
        return refusal(503, str(error), **{"Retry-After": "1"})
    except Refused as error:
        return refusal(503, str(error))
    http.app[REQUESTS][request.number] = request
    try:
        return await stream(http, request)
    finally:  # aiohttp cancels the handler of a client that leaves
        engine.cancel(request)
        del http.app[REQUESTS][request.number]


async def stream(http: web.Request, request: Request) -> web.StreamResponse:
    """Write the events of a request."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(http)

    async def send(**event: Any) -> None:
        await response.write(f"data: {json.dumps(event)}\n\n".encode())

    await send(id=request.number)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    try:
        async for token in request.stream():
            await send(token=token, text=decoder.decode(bytes([token])))
        end = "done" if request.generated == request.limit else "cancelled"
        await send(**{end: True}, text=decoder.decode(b"", final=True))
    except Refused as error:
        await send(error=str(error))
    await response.write_eof()
    return response


async def cancel(http: web.Request) -> web.Response:
    """Cancel a request by its number."""
    request = http.app[REQUESTS].get(int(http.match_info["number"]))
    if request is None:
        return refusal(404, f"there is no request {http.match_info['number']}")
    http.app[ENGINE].cancel(request)
    return web.json_response({"cancelled": request.number})


async def stats(http: web.Request) -> web.Response:
    """What the engine has and has done."""
    engine = http.app[ENGINE]
    return web.json_response(
        {
            "pages": engine.sizes.count,
            "free": len(engine.pool),
            "running": len(engine.running),
            "waiting": len(engine.waiting),
            "accepted": engine.accepted,
            "steps": engine.steps,
            "preemptions": engine.preemptions,
            "compiles": compiles(engine),
            "cpu_s": time.process_time(),
        }
    )


def compiles(engine: Engine) -> int:
    """How often the step was compiled; 0 in eager."""
    # a compiled module is an instance of its module's class too
    return thunder.cache_misses(engine.step) if isinstance(engine.step, thunder.ThunderModule) else 0


async def page(http: web.Request) -> web.Response:
    """The page that streams tokens."""
    return web.Response(text=PAGE.read_text(encoding="utf-8"), content_type="text/html")


def application(engine: Engine) -> web.Application:
    """The server of an engine, which runs as long as it."""

    async def run(app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(engine.serve())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    app = web.Application()
    app[ENGINE], app[REQUESTS] = engine, {}
    app.cleanup_ctx.append(run)
    app.add_routes(
        [
            web.get("/", page),
            web.get("/stats", stats),
            web.post("/generate", generate),
            web.delete(r"/generate/{number:\d+}", cancel),
        ]
    )
    return app


# -- the command ----------------------------------------------------------------------------------------


def options() -> argparse.Namespace:
    """The command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--executors", nargs="+", help="of thunder (default: those that are installed)")
    parser.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="0 is a free one (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--pages", type=int, default=256, help="of the cache (default: %(default)s)")
    parser.add_argument("--page-size", type=int, default=16, help="tokens of a page (default: %(default)s)")
    parser.add_argument("--running", type=int, default=64, help="requests at once (default: %(default)s)")
    parser.add_argument(
        "--waiting", type=int, default=256, help="requests in the queue (default: %(default)s)"
    )
    parser.add_argument("--rows", type=int, default=128, help="tokens of a step (default: %(default)s)")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--weights", type=Path, help="what demo.py --save wrote (default: random ones)")
    return parser.parse_args()


async def main(arguments: argparse.Namespace) -> None:
    """Build, compile, serve until interrupted."""
    sizes = PageSizes(count=arguments.pages, size=arguments.page_size)
    model = build_model(arguments.layers, sizes, arguments.weights).to(arguments.device)
    limits = Limits(
        context=model.model.config.context,
        running=arguments.running,
        waiting=arguments.waiting,
        rows=arguments.rows,
    )
    graphs = []
    if arguments.device.type == "cuda":
        from thunder.transforms import CUDAGraphTransform  # of thunder-transforms, which a CPU does not need

        graphs.append(CUDAGraphTransform())
    step = model if arguments.eager else compile_step(model, arguments.executors, *graphs)
    engine = Engine(step, sizes, limits, device=arguments.device, fixed=bool(graphs))
    start = time.process_time()
    await engine.warm_up()
    print(f"the first step took {time.process_time() - start:.2f} s of CPU", flush=True)
    runner = web.AppRunner(application(engine), handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, arguments.host, arguments.port)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(options()))
