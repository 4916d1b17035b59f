"""What a process looks at while it waits for others: alarms, and processes that do not answer.

Note [Alarms]
A process that knows that the others wait in vain writes so into the store, under the group and the position:
the number of the program, or that of a communication outside of programs. Those who wait look there once a
second. An alarm is about one position, so that a group which is used again is not disturbed.

    {"silent": 2, "seconds": 61.0}          rank 2 is stopped, or its machine is
    {"first": [0, […]], "second": [2, […]]}     ranks 0 and 2 have begun other programs

A process whose main thread computes, compiles or waits answers, since another thread does (Note [Presence]).
So one that is slow is waited for until the timeout of the group is over, and one that is stopped is not.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import distributed_c10d

from .presence import ask
from .running import Alarm, Running

__all__ = ["Watch"]

#: how many other processes are asked each time: in large groups each asks some, and all read the alarm
ASKED: Final = 32


class Watch:
    """The others of a group, for which this process waits at a position."""

    def __init__(self, running: Running, position: str) -> None:
        self._running, self._key = running, running.alarm_key(position)
        own = dist.get_rank()
        ranks = dist.get_process_group_ranks(running.group)
        began = time.monotonic()
        #: global rank → when it last answered, or this process began to ask
        self._answered = {rank: began for rank in ranks if rank != own}

    def look(self) -> None:
        """Raise Alarm if there is one, or if another process has not answered for too long."""
        store: Any = distributed_c10d._get_default_store()
        if store.check([self._key]):
            raise Alarm(json.loads(store.get(self._key)))
        limit = self._running.hang_timeout
        if limit is None:
            return
        ranks = sorted(self._answered)
        for rank in random.SystemRandom().sample(ranks, min(ASKED, len(ranks))):
            if not ask(rank).is_silent:
                self._answered[rank] = time.monotonic()
            elif (seconds := time.monotonic() - self._answered[rank]) > limit:
                alarm = {"silent": rank, "seconds": seconds}
                store.set(self._key, json.dumps(alarm))
                raise Alarm(alarm)
