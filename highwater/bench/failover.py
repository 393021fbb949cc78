"""How long partitions are without a leader when a broker ends: `python -m highwater.bench failover`.

Each kind of end is repeated on both brokers in turn, on clusters of three with a session time-out of `SESSION_MS`. The
picture has a dot for each time, `results/failover.svg`.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from jinja2 import Template

from highwater.bench.brokers import (
    APACHE,
    FAILOVER,
    PROMPT,
    REFERENCE,
    ROUNDS,
    SESSION_MS,
    Brokers,
    Sample,
    apache_cluster,
    bootstrap,
    create,
    new_leader,
    partitions_of,
    reference_cluster,
)
from highwater.errors import UsageError

PICTURE: Final = Path("results/failover.svg")
PARTITIONS: Final = 12
PAUSE_S: Final = SESSION_MS / 3000
WIDTH, LEFT, ROW, TOP = 760, 300, 34, 46

DRAWING: Final = Template(
    """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width }} {{ height }}" font-family="sans-serif"
 font-size="12" role="img" aria-label="{{ title }}">
<rect width="100%" height="100%" fill="#fff"/><text x="12" y="20" font-size="14">{{ title }}</text>
{% for tick in ticks %}<line x1="{{ tick.x }}" x2="{{ tick.x }}" y1="{{ top - 8 }}" y2="{{ height - 24 }}"
 stroke="#ddd"/><text x="{{ tick.x }}" y="{{ height - 8 }}" text-anchor="middle">{{ tick.text }} s</text>
{% endfor %}{% for row in rows %}<text x="{{ left - 12 }}" y="{{ row.y + 4 }}" text-anchor="end">{{ row.name }}</text>
{% for x in row.dots %}<circle cx="{{ x }}" cy="{{ row.y }}" r="5" fill="{{ row.colour }}" fill-opacity=".6"/>
{% endfor %}{% endfor %}</svg>
""",
    autoescape=True,
)
COLOURS: Final = {REFERENCE: "#0b6e99", APACHE: "#c4551b"}


def new_leaders_of_a_pause(cluster: Brokers) -> float:
    """Stop the process of a leader for less than its session; return how many of its partitions get another leader."""
    admin, node = AdminClient({"bootstrap.servers": bootstrap(cluster), **PROMPT}), min(cluster.addresses)
    before = {part.id for part in partitions_of(admin, FAILOVER) if part.leader == node}
    os.kill(cluster.pid(node), signal.SIGSTOP)
    time.sleep(PAUSE_S)
    os.kill(cluster.pid(node), signal.SIGCONT)
    time.sleep(PAUSE_S)
    return float(len(before - {part.id for part in partitions_of(admin, FAILOVER) if part.leader == node}))


ENDS: Final[dict[str, Callable[[Brokers], float]]] = {
    "SIGTERM": lambda cluster: new_leader(cluster, cluster.stop_node),
    f"SIGKILL, session {SESSION_MS // 1000} s": lambda cluster: new_leader(cluster, cluster.kill_node),
    f"SIGSTOP for {PAUSE_S:.0f} s": new_leaders_of_a_pause,
}


def measure() -> Iterator[str]:
    """Yield a line for each kind of end; draw the picture at the end."""
    samples: dict[tuple[str, str], Sample] = {}
    with ExitStack() as stack:
        clusters = {REFERENCE: stack.enter_context(reference_cluster(3))}
        try:
            clusters[APACHE] = stack.enter_context(apache_cluster(3))
        except UsageError as missing:
            yield f"(no Apache Kafka here: {missing})"
        for cluster in clusters.values():
            create(cluster, FAILOVER, PARTITIONS, 3)
        for end in ENDS:
            for name in clusters:
                samples[end, name] = Sample()
            for _ in range(ROUNDS):
                for name, cluster in clusters.items():
                    _take(samples[end, name], ENDS[end], cluster)
            unit = "leaders moved" if "SIGSTOP" in end else "s"
            found = ", ".join(f"{name} {samples[end, name]}" for name in clusters)
            yield f"{end}: {found} {unit}"
    yield f"picture: {draw({key: sample.values for key, sample in samples.items() if 'SIGSTOP' not in key[0]})}"


def _take(sample: Sample, end: Callable[[Brokers], float], cluster: Brokers) -> None:
    if not sample.fault:
        try:
            sample.values.append(end(cluster))
        except TimeoutError as error:
            sample.fault = str(error)


def draw(times: Mapping[tuple[str, str], list[float]]) -> Path:
    """Write a picture with a row for each kind of end and broker, and a dot for each time in s."""
    longest = max((value for values in times.values() for value in values), default=1.0)
    scale = (WIDTH - LEFT - 24) / (int(longest) + 1)
    rows = [
        {
            "name": f"{end}: {name}",
            "y": TOP + ROW * n,
            "dots": [LEFT + scale * v for v in values],
            "colour": COLOURS[name],
        }
        for n, ((end, name), values) in enumerate(times.items())
    ]
    ticks = [{"x": LEFT + scale * second, "text": second} for second in range(int(longest) + 2)]
    title = "Time until another broker leads all partitions of the one that ended"
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(
        DRAWING.render(
            width=WIDTH, height=TOP + ROW * len(rows) + 16, title=title, rows=rows, ticks=ticks, top=TOP, left=LEFT
        )
    )
    return PICTURE
