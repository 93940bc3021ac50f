"""Draws the chart of a run: python chart.py RESULTS.json OUT.svg (run by the bench's venv).

Two panels of bars: rates as a share of the plain read of the source in the same run, and
the first read of weightfs and its peers. Text stays text, the background stays clear, and
all ink is mid-grey or a colour that reads on white and on black.
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 (the back end comes first)

INK, OURS, THEIRS, FLOOR = "#7d8590", "#2f81f7", "#9a6fd0", "#d29922"

SHARES = [
    ("sequential, source cached", "1 MiB, verify=off", "unchecked, 1 MiB reads"),
    ("sequential, source cached", "1 MiB, default options, first read", "checked, 1 MiB reads"),
    ("sequential, 128 KiB reads", "128 KiB, default options", "checked, 128 KiB reads"),
    ("sequential, 2 readers", "1 MiB, default options, 2 readers", "checked, 2 readers"),
    ("sequential, 8 readers", "1 MiB, default options, 8 readers", "checked, 8 readers"),
    ("sequential, source cached", "1 MiB, cache=page, first read", "cache=page, first read"),
    ("sequential, source cached", "1 MiB, cache=page, read again", "cache=page, read again"),
    ("mapped, copied out in order", "default options, first mapping", "checked, mapped"),
    ("mapped, copied out in order", "cache=page, mapped again", "cache=page, mapped again"),
    ("sequential, source not cached", "1 MiB, default options", "checked, from disk"),
]


def bars(axes, names, values, colours, title, digits):
    places = range(len(names))
    axes.barh(places, values, color=colours, height=0.62)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    room = max(values, default=1.0)
    for place, value in zip(places, values):
        axes.text(value + 0.012 * room, place, f"{value:.{digits}f}", va="center", fontsize=9, color=INK)
    axes.set_xlim(0, room * 1.12)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.xaxis.grid(True, color=INK, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def main(source, target):
    with open(source, encoding="utf-8") as file:
        run = json.load(file)
    found = {(row["group"], row["case"]): row["value"] for row in run["rows"]}
    shares = [(label, found[group, case]) for group, case, label in SHARES if (group, case) in found]
    group = "peers, 1 MiB reads of the same bytes"
    first = ", first read"
    peers = [(case[: -len(first)], value) for (where, case), value in found.items() if where == group and case.endswith(first)]
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "weightfs", "font.family": "sans-serif"}
    panels = [panel for panel in (shares, peers) if panel]
    if not panels:
        sys.exit("chart: the run has none of the figures that are drawn (groups basic, blocks, crowds, maps, cold, peers)")
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(8, 1.1 + 0.33 * sum(map(len, panels)) + 0.5 * len(panels)), squeeze=False,
        gridspec_kw={"height_ratios": [len(panel) for panel in panels]}, layout="constrained",
    )
    for axis, panel in zip(axes[:, 0], panels):
        peer = panel is peers
        colours = [OURS if not peer or name.startswith("weightfs") else THEIRS for name, _ in panel]
        title = "First read of the same bytes, as a share of reading the source" if peer else "Rate as a share of reading the source in the same way (1.0)"
        bars(axis, [name for name, _ in panel], [value for _, value in panel], colours, title, 2)
    machine = run["machine"]
    note = f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}; scripts/bench"
    figure.supxlabel(note, fontsize=8, color=INK, x=0.01, ha="left")
    figure.savefig(target, transparent=True, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
