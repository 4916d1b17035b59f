"""Schedules of pipelines, as data: functions that make them, checks, and times by a simulation."""

from thunder_distributed.pipelines.actions import Action
from thunder_distributed.pipelines.schedule_checks import ScheduleFacts, check
from thunder_distributed.pipelines.schedules import Schedule, gpipe, interleaved, one_f_one_b, zero_bubble
from thunder_distributed.pipelines.simulation import Simulation

__all__ = [
    "Action",
    "Schedule",
    "ScheduleFacts",
    "Simulation",
    "check",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "zero_bubble",
]
