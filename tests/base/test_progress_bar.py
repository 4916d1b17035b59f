"""The progress bar appears on a terminal, and only when work takes long."""

from __future__ import annotations

import io

import pytest

from thunder.base.progress_bar import DELAY, ProgressBar


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that the test sets, in seconds."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def written(stream: io.StringIO, *, seconds: float, enabled: bool = True) -> str:
    """Return what two pieces of work of three write, the second after some seconds."""
    clock = Clock()
    with ProgressBar(3, "compiling", enabled=enabled, stream=stream, clock=clock) as bar:
        bar.advance()
        clock.now += seconds
        bar.advance()
        return stream.getvalue()


def test_it_appears_with_what_was_done_before() -> None:
    text = written(Terminal(), seconds=DELAY + 0.1)
    assert "compiling" in text
    assert "2/3" in text


@pytest.mark.parametrize(
    ("stream", "seconds", "enabled"),
    [(Terminal(), DELAY / 2, True), (io.StringIO(), DELAY * 2, True), (Terminal(), DELAY * 2, False)],
    ids=["quick", "no-terminal", "disabled"],
)
def test_it_does_not_appear(stream: io.StringIO, seconds: float, enabled: bool) -> None:
    assert written(stream, seconds=seconds, enabled=enabled) == ""


def test_it_does_not_appear_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thunder.base.optional_modules.find_spec", lambda name: None)
    assert written(Terminal(), seconds=DELAY * 2) == ""


def test_it_is_shown_between_pieces_of_work_when_the_time_has_come() -> None:
    clock, stream = Clock(), Terminal()
    with ProgressBar(3, "compiling", stream=stream, clock=clock) as bar:
        assert bar.seconds_left == DELAY
        clock.now += DELAY
        assert bar.seconds_left == 0
        bar.refresh()
        assert "0/3" in stream.getvalue()
        assert bar.seconds_left is None


def test_it_is_not_shown_when_all_is_done_and_leaves_no_line() -> None:
    clock, stream = Clock(), Terminal()
    with ProgressBar(1, "compiling", stream=stream, clock=clock) as bar:
        clock.now += DELAY * 2
        bar.advance()
    assert stream.getvalue() == ""
    with ProgressBar(2, "compiling", stream=stream, clock=clock) as bar:
        clock.now += DELAY * 2
        bar.advance()
    assert stream.getvalue().endswith("\r"), "the line is cleared"


def test_a_closed_stream_is_no_terminal() -> None:
    stream = Terminal()
    stream.close()
    assert ProgressBar(2, "compiling", stream=stream).seconds_left is None
