"""Synthetic runs of Jepsen's workloads, printed as Clojure prints them."""

import random
from collections.abc import Iterable
from typing import Any

from highwater.reports.importers.edn import MAP, SET

Op = dict[str, Any]
FROM_THE_START: dict[str, Any] = {"seek-to-beginning?": True}


def print_edn(value: Any) -> str:
    """Print a value of `edn.parse` as EDN."""
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value if value.startswith(":") else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if not isinstance(value, list):
        return str(value)
    if value[:1] == [MAP]:
        pairs = zip(value[1::2], value[2::2], strict=True)
        return "{" + ", ".join(f"{print_edn(key)} {print_edn(each)}" for key, each in pairs) + "}"
    if value[:1] == [SET]:
        return "#{" + " ".join(map(print_edn, value[1:])) + "}"
    return "[" + " ".join(map(print_edn, value)) + "]"


def print_op(op: Op) -> str:
    return print_edn([MAP, *(each for pair in op.items() for each in pair)])


def lines(ops: Iterable[Op]) -> bytes:
    return "".join(print_op(op) + "\n" for op in ops).encode()


class Run:
    """A sequence of operations; `kind` is the type of the completion, None for an operation without one."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(self, process: Any, kind: str, f: str, value: Any, **extra: Any) -> None:
        index = len(self.ops)
        head = {":index": index, ":time": index * 1000, ":type": f":{kind}", ":process": process, ":f": f":{f}"}
        self.ops.append(head | {":value": value} | {f":{name}": each for name, each in extra.items()})

    def op(self, process: int, f: str, invoked: Any, completed: Any, kind: str | None = "ok", **extra: Any) -> None:
        self.add(process, "invoke", f, invoked)
        if kind:
            self.add(process, kind, f, completed, **extra)

    def send(self, process: int, key: Any, value: Any, offset: int | None, kind: str | None = "ok") -> None:
        self.op(process, "send", [[":send", key, value]], [[":send", key, [offset, value]]], kind)

    def poll(self, process: int, key: Any, *records: tuple[int, Any], kind: str = "ok", **extra: Any) -> None:
        completed = [MAP, key, [list(record) for record in records]] if records else [MAP]
        self.op(process, "poll", [[":poll"]], [[":poll", completed]], kind, **extra)

    def assign(self, process: int, *keys: Any, how: str = "assign", **extra: Any) -> None:
        self.op(process, how, list(keys), list(keys), **extra)


def healthy(operations: int, *, keys: int = 4, seed: int = 0) -> Run:
    """Return a run of concurrent producers and consumers and a nemesis, without anomalies."""
    chance = random.Random(seed)
    run = Run()
    logs: list[list[int]] = [[] for _ in range(keys)]
    read: dict[int, list[int]] = {process: [0] * keys for process in range(4, 8)}
    for process in read:
        run.assign(process, *range(keys), **FROM_THE_START)
    for number in range(operations):
        key = chance.randrange(keys)
        if number % 2:
            log = logs[key]
            offset = (log[-1] if log else -1) + chance.choice((1, 1, 1, 2))
            run.send(chance.randrange(4), key, len(log), offset)
            log.append(offset)
        else:
            process = chance.choice(list(read))
            begin = read[process][key]
            records = [(offset, begin + place) for place, offset in enumerate(logs[key][begin : begin + 5])]
            read[process][key] += len(records)
            run.poll(process, key, *records)
        if number % 1000 == 500:
            for _ in range(2):
                run.add(":nemesis", "info", "kill", [MAP, "n1", ":killed"])
    for key, log in enumerate(logs):  # final polls, so that every record is read
        for begin in range(read[4][key], len(log), 5):
            run.poll(4, key, *((offset, begin + place) for place, offset in enumerate(log[begin : begin + 5])))
    return run
