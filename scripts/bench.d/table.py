"""The table and the JSON document of a run."""

import json

HEAD = ("case", "measured", "", "must reach", "", "rate", "floor", "CPU s/GB, daemon + reader")


def number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.3f}"


def rate(value):
    return "" if value is None else f"{value / 1e9:.2f} GB/s"


def cells(row):
    need = f"{row.need[0]} {number(row.need[1])}" if row.need else ""
    mark = {True: "ok", False: "MISSED", None: ""}[row.met()]
    cpu = "" if row.cpu is None else f"{row.cpu[0]:.2f} + {row.cpu[1]:.2f}"
    return (f"  {row.case}", number(row.value), row.unit, need, mark, rate(row.rate), rate(row.floor), cpu)


def text(results, machine_line, remark=""):
    groups = list(dict.fromkeys(row.group for row in results.rows))
    body = {group: [cells(row) for row in results.rows if row.group == group] for group in groups}
    everything = [HEAD, *(line for lines in body.values() for line in lines)]
    widths = [max(len(line[column]) for line in everything) for column in range(len(HEAD))]
    right = {1, 5, 6, 7}

    def aligned(line):
        words = (cell.rjust(width) if column in right else cell.ljust(width) for column, (cell, width) in enumerate(zip(line, widths)))
        return "  ".join(words).rstrip()

    lines = [machine_line, *([remark] if remark else []), "", aligned(HEAD)]
    for group in groups:
        lines += ["", group, *map(aligned, body[group])]
    if results.missing:
        lines += ["", "not measured"]
        lines += [f"  {item['group']}: {item['why']}" for item in results.missing]
    judged = [row for row in results.rows if row.need]
    missed = [row for row in judged if not row.met()]
    lines += ["", f"{len(judged) - len(missed)} of {len(judged)} targets reached"]
    return "\n".join(lines) + "\n"


def document(results, facts, busy, memory, arguments):
    return {
        "machine": facts,
        "busy": busy,
        "daemon_memory_bytes": memory,
        "arguments": arguments,
        "rows": [row.document() for row in results.rows],
        "missing": results.missing,
    }


def write_json(path, content):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
