"""Latency and throughput as inline SVG, fault windows shaded. Colours work on light and on dark paper."""

import io
from typing import Any

from reports.timeline import Timeline

GREY = "#7d8590"
WORDS = {"ok": "acknowledged", "info": "unknown", "fail": "refused"}
COLOURS = {"ok": "#2f81f7", "info": "#d29922", "fail": "#f85149"}
SHADES = {"kill": "#f85149", "bounce": "#f85149", "pause": "#d29922"}
OTHER_SHADE = "#8957e5"
BUCKET_S = 0.25


def plots(timeline: Timeline) -> str:
    """One SVG element: latency above, throughput below, on the same time axis."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    settings: Any = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "axes.edgecolor": GREY,
                "text.color": GREY, "axes.labelcolor": GREY, "xtick.color": GREY, "ytick.color": GREY,
                "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "highwater"}  # fmt: skip
    with mpl.rc_context(settings):
        figure, (latency, rate) = plt.subplots(2, 1, sharex=True, figsize=(9.6, 4.2), height_ratios=(3, 2))
        for outcome, colour in COLOURS.items():
            points = [(when, ms) for when, ms, kind in timeline.latencies if kind == outcome]
            if points:
                latency.scatter(*zip(*_thin(points), strict=True), s=5, color=colour, linewidths=0, alpha=0.55,
                                label=WORDS[outcome])  # fmt: skip
        latency.set_yscale("log")
        latency.set_ylabel("send latency, ms")
        latency.legend(frameon=False, loc="upper right", ncols=3, fontsize=8)
        buckets = int(timeline.duration_s / BUCKET_S) + 1
        counts = [0] * buckets
        for when, _, kind in timeline.latencies:
            if kind == "ok":
                counts[min(int(when / BUCKET_S), buckets - 1)] += 1
        times = [slot * BUCKET_S for slot in range(buckets)]
        rate.step(times, [count / BUCKET_S for count in counts], where="post", color=COLOURS["ok"], linewidth=1.2)
        rate.set_ylabel("acknowledged / s")
        rate.set_xlabel("seconds")
        rate.set_xlim(0, timeline.duration_s)
        for axis in (latency, rate):
            for window in timeline.windows:
                shade = SHADES.get(window.kind, OTHER_SHADE)
                axis.axvspan(window.start_s, window.end_s, color=shade, alpha=0.13, linewidth=0)
        figure.tight_layout()
        sink = io.StringIO()
        figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    text = sink.getvalue()
    return text[text.index("<svg") :].replace("<svg ", '<svg role="img" aria-label="latency and throughput" ', 1)


def _thin(points: list[tuple[float, float]], limit: int = 2_500) -> list[tuple[float, float]]:
    """Enough points to see; the slowest are always among them."""
    if len(points) <= limit:
        return points
    slow = sorted(points, key=lambda point: -point[1])[: limit // 5]
    step = len(points) // (limit - len(slow)) + 1
    return [*points[::step], *slow]
