"""Shrink a list of cases that fails: fewer cases, then fewer frames and cuts, then fewer bytes."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from highwater.fuzz.wire.generate.cases import Case, Ends, is_whole, with_size

Part = TypeVar("Part")
Breaks = Callable[[list[Case]], bool]
SHORTEST_FRAME = 8


class TimeLimitReached(Exception):
    """Ends the search at its time limit, since even building the remaining candidates takes long."""


def shrink(cases: list[Case], breaks: Breaks, seconds: float) -> list[Case]:
    """Return the smallest list of cases found in `seconds` that still fails. `cases` themselves must fail."""
    end, smallest = time.monotonic() + seconds, cases

    def in_time(candidate: list[Case]) -> bool:
        nonlocal smallest
        if time.monotonic() >= end:
            raise TimeLimitReached
        if not breaks(candidate):
            return False
        smallest = candidate
        return True

    with suppress(TimeLimitReached):
        _shrink(cases, in_time)
    return smallest


def _shrink(cases: list[Case], breaks: Breaks) -> None:
    cases = _remove_cases(cases, breaks)
    for number in range(len(cases)):
        for change in (_join_segments, _keep_open, *(_without_frame(n) for n in range(len(cases[number].frames)))):
            candidate = [*cases[:number], change(cases[number]), *cases[number + 1 :]]
            if candidate != cases and candidate[number].frames and breaks(candidate):
                cases = candidate
    for number in range(len(cases)):
        cases = _shorten_frame(cases, number, breaks)


def _remove_cases(cases: list[Case], breaks: Breaks) -> list[Case]:
    """Keep the last case if that is enough, otherwise as few as needed."""
    return cases[-1:] if len(cases) > 1 and breaks(cases[-1:]) else minimise_list(cases, breaks)


def minimise_list(parts: list[Part], breaks: Callable[[list[Part]], bool]) -> list[Part]:
    """Leave out ever smaller pieces of a list while it still fails; at least one part remains."""
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


def _join_segments(case: Case) -> Case:
    return replace(case, cuts=())


def _keep_open(case: Case) -> Case:
    return replace(case, ends=Ends.OPEN) if all(map(is_whole, case.frames)) else case


def _without_frame(number: int) -> Callable[[Case], Case]:
    return lambda case: replace(case, frames=case.frames[:number] + case.frames[number + 1 :])


def _shorten_frame(cases: list[Case], number: int, breaks: Breaks) -> list[Case]:
    """Cut ever smaller pieces out of a case's last frame; correct the size field if it was right before."""
    case = cases[number]
    *before, frame = case.frames
    has_right_size = is_whole(frame)
    body = frame[4:]
    piece = len(body) // 2
    while piece and not case.cuts:
        start = 0
        while start < len(body):
            shorter = body[:start] + body[start + piece :]
            new = with_size(shorter) if has_right_size else frame[:4] + shorter
            candidate = [*cases[:number], replace(case, frames=(*before, new)), *cases[number + 1 :]]
            if len(shorter) >= SHORTEST_FRAME and breaks(candidate):
                body, cases = shorter, candidate
            else:
                start += piece
        piece //= 2
    return cases
