"""Fewer steps, then fewer frames and cuts, then fewer bytes, as long as the same thing breaks."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from highwater.fuzz.wire.generate.cases import Case, Ends, is_whole, with_size

Part = TypeVar("Part")
Breaks = Callable[[list[Case]], bool]
SHORTEST_FRAME = 8


class TimeOver(Exception):
    """However long the candidates are that were still to come: to make them takes time, too."""


def shrink(cases: list[Case], breaks: Breaks, seconds: float) -> list[Case]:
    """What is left when nothing more can go, or the time is over. `cases` themselves must break."""
    end, least = time.monotonic() + seconds, cases

    def in_time(candidate: list[Case]) -> bool:
        nonlocal least
        if time.monotonic() >= end:
            raise TimeOver
        if not breaks(candidate):
            return False
        least = candidate
        return True

    with suppress(TimeOver):
        _shrink(cases, in_time)
    return least


def _shrink(cases: list[Case], breaks: Breaks) -> None:
    cases = _fewer(cases, breaks)
    for number in range(len(cases)):
        for change in (_one_segment, _stays_open, *(_without_frame(n) for n in range(len(cases[number].frames)))):
            candidate = [*cases[:number], change(cases[number]), *cases[number + 1 :]]
            if candidate != cases and candidate[number].frames and breaks(candidate):
                cases = candidate
    for number in range(len(cases)):
        cases = _shorter(cases, number, breaks)


def _fewer(cases: list[Case], breaks: Breaks) -> list[Case]:
    """The last alone if that is enough, otherwise as few as it needs."""
    return cases[-1:] if len(cases) > 1 and breaks(cases[-1:]) else fewest(cases, breaks)


def fewest(parts: list[Part], breaks: Callable[[list[Part]], bool]) -> list[Part]:
    """Ever smaller pieces are left out; one part is left at least."""
    piece = len(parts) // 2
    while piece:
        start = 0
        while start < len(parts) and len(parts) > 1:
            candidate = parts[:start] + parts[start + piece :]
            if candidate and breaks(candidate):
                parts = candidate
            else:
                start += piece
        piece //= 2
    return parts


def _one_segment(case: Case) -> Case:
    return replace(case, cuts=())


def _stays_open(case: Case) -> Case:
    return replace(case, ends=Ends.OPEN) if all(map(is_whole, case.frames)) else case


def _without_frame(number: int) -> Callable[[Case], Case]:
    return lambda case: replace(case, frames=case.frames[:number] + case.frames[number + 1 :])


def _shorter(cases: list[Case], number: int, breaks: Breaks) -> list[Case]:
    """Cut bytes out of a case's last frame in ever smaller pieces, correcting its size if it was right."""
    case = cases[number]
    *before, frame = case.frames
    honest = is_whole(frame)
    body = frame[4:]
    piece = len(body) // 2
    while piece and not case.cuts:
        start = 0
        while start < len(body):
            shorter = body[:start] + body[start + piece :]
            new = with_size(shorter) if honest else frame[:4] + shorter
            candidate = [*cases[:number], replace(case, frames=(*before, new)), *cases[number + 1 :]]
            if len(shorter) >= SHORTEST_FRAME and breaks(candidate):
                body, cases = shorter, candidate
            else:
                start += piece
        piece //= 2
    return cases
