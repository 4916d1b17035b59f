# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "thunder-core", "aiohttp>=3.12"]
# ///
"""Many clients at once: tokens per second and latency of the server of serve.py, compiled and in eager.

hatch run load [--clients 64] [--requests 4] [--tokens 48] [--rounds 3] [-- options of serve.py]

Each way has a server in a process of its own; the ways take turns, `--rounds` times. Each client sends one
request after the other: prompts of 8 to 40 characters, half of them greedy, whose tokens have to be the same
in all ways. The latency of a request is the time from sending it to its last token; `first` is that to its
first token. A busy machine slows clients and server alike, which tokens per second of the server's CPU do not
show.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

SERVER = Path(__file__).with_name("serve.py")
#: way → options of the server
WAYS = {
    "eager": ("--eager",),
    "thunder, torch": ("--executors", "torch"),
    "thunder, inductor": ("--executors", "inductor", "torch"),
}
#: the columns of the table, latencies in ms
HEAD = (
    "way              ",
    "tokens/s",
    "tokens/CPU s",
    "p50",
    "p99",
    "first p50",
    "first p99",
    "steps",
    "compiles",
)


@dataclass(frozen=True)
class Answer:
    """What one request received, and when, in seconds after it was sent."""

    tokens: tuple[int, ...]
    first: float
    last: float


@dataclass(frozen=True)
class Round:
    """What all clients of one server received, the seconds that took, and what the server said afterwards."""

    answers: tuple[Answer, ...]
    seconds: float
    cpu_s: float
    stats: dict[str, Any]

    @property
    def tokens(self) -> int:
        """All tokens that were generated."""
        return sum(len(answer.tokens) for answer in self.answers)


def bodies(clients: int, requests: int, tokens: int) -> list[list[dict[str, Any]]]:
    """The requests of each client."""
    draw = random.Random(0)

    def body(number: int) -> dict[str, Any]:
        prompt = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz     ", k=draw.randrange(8, 41)))
        drawn = {"temperature": 0.8, "seed": number} if number % 2 else {}
        return {"prompt": prompt, "tokens": draw.randrange(tokens // 2, tokens + 1), **drawn}

    return [[body(client * requests + n) for n in range(requests)] for client in range(clients)]


async def ask(session: aiohttp.ClientSession, body: dict[str, Any]) -> Answer:
    """Send one request and read its events; raises RuntimeError for another end than the last token's."""
    start, times, tokens, event = time.perf_counter(), [], [], {}
    async with session.post("/generate", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                if "token" in event:
                    tokens.append(event["token"])
                    times.append(time.perf_counter() - start)
    if not event.get("done") or len(tokens) != body["tokens"]:
        raise RuntimeError(f"{body} ended with {event} after {len(tokens)} tokens")
    return Answer(tuple(tokens), times[0], times[-1])


async def load(address: str, clients: Sequence[Sequence[dict[str, Any]]]) -> Round:
    """Let all clients send their requests, one after the other each."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(address, connector=connector) as session:

        async def stats() -> dict[str, Any]:
            async with session.get("/stats") as response:
                found: dict[str, Any] = await response.json()
                return found

        async def one(requests: Sequence[dict[str, Any]]) -> list[Answer]:
            return [await ask(session, body) for body in requests]

        before, start = await stats(), time.perf_counter()
        answers = await asyncio.gather(*(one(requests) for requests in clients))
        seconds, after = time.perf_counter() - start, await stats()
    cpu = after["cpu_s"] - before["cpu_s"]
    return Round(tuple(answer for each in answers for answer in each), seconds, cpu, after)


async def measure(way: str, clients: Sequence[Sequence[dict[str, Any]]], options: Sequence[str]) -> Round:
    """Start a server, load it, and stop it."""
    command = (sys.executable, str(SERVER), "--port", "0", *WAYS[way], *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            if line.startswith(b"http://"):
                found = await load(line.decode().strip(), clients)
                break
        else:
            raise RuntimeError(f"the server ended with {await process.wait()} before it was ready")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    if found.stats["free"] != found.stats["pages"] or found.stats["compiles"] > 2:
        raise RuntimeError(f"pages are lost, or there are more than two compiles: {found.stats}")
    return found


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    return sorted(values)[max(-(-len(values) * percent // 100) - 1, 0)]


def row(way: str, rounds: Sequence[Round]) -> str:
    """One row of the table: medians over the rounds."""

    def middle(values: Sequence[float]) -> float:
        return statistics.median(values)

    def of(attribute: str, percent: int) -> float:
        return middle([percentile([getattr(a, attribute) for a in r.answers], percent) for r in rounds]) * 1e3

    cells = (
        way,
        f"{middle([r.tokens / r.seconds for r in rounds]):.0f}",
        f"{middle([r.tokens / r.cpu_s for r in rounds]):.0f}",
        *(f"{of(name, percent):.0f}" for name in ("last", "first") for percent in (50, 99)),
        str(rounds[-1].stats["steps"]),
        str(rounds[-1].stats["compiles"]),
    )
    first, *others = zip(cells, HEAD, strict=True)
    return f"| {first[0]:<{len(first[1])}} | " + " | ".join(f"{c:>{len(h)}}" for c, h in others) + " |"


def options() -> argparse.Namespace:
    """The command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--clients", type=int, default=64, help="at once (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=4, help="of each client (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=48, help="at most, of a request (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="servers of each way (default: %(default)s)")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("server", nargs="*", help="options of serve.py, after --")
    return parser.parse_args()


async def main(arguments: argparse.Namespace) -> None:
    """Load each server in turn, compare their tokens, print the table."""
    clients = bodies(arguments.clients, arguments.requests, arguments.tokens)
    rounds: dict[str, list[Round]] = {way: [] for way in arguments.ways}
    for _ in range(arguments.rounds):
        for way in arguments.ways:
            rounds[way].append(await measure(way, clients, arguments.server))
    every = [found for each in rounds.values() for found in each]
    expected = [answer.tokens for answer in every[0].answers]
    greedy = [n for n, body in enumerate(b for each in clients for b in each) if "seed" not in body]
    different = {
        way: sum(expected[n] != found.answers[n].tokens for found in each for n in greedy)
        for way, each in rounds.items()
    }
    print("| " + " | ".join(HEAD) + " |", "|" + "|".join("-" * (len(h) + 2) for h in HEAD) + "|", sep="\n")
    for way, each in rounds.items():
        print(row(way, each))
    print(f"{every[0].tokens} tokens of {len(expected)} requests of {len(clients)} clients")
    if any(different.values()):
        raise SystemExit(f"requests with other greedy tokens: {different}")
    print("all ways generate the same greedy tokens")


if __name__ == "__main__":
    asyncio.run(main(options()))
