#!/usr/bin/env python3
# Asks SQL questions about a model: DuckDB over the descriptions of its tensors. Here: how many bytes by type and by layer.
# Run: python3 tables.py MNT, or without a mount: weightfs ls MODEL --json | python3 tables.py -

import signal
import sys
from pathlib import Path

import duckdb

# Of a mount: each tensor's own JSON file. Of `ls --json`: one document that lists them.
FROM_MOUNT = "SELECT name, dtype, shape, nbytes FROM read_json(?, columns = {columns})"
FROM_LIST = "SELECT t.* FROM (SELECT unnest(tensors) t FROM read_json(?, columns = {{'tensors': '{struct}[]'}}, maximum_object_size = 1 << 30))"
COLUMNS = {"name": "VARCHAR", "dtype": "VARCHAR", "shape": "UBIGINT[]", "nbytes": "UBIGINT"}
STRUCT = f"STRUCT({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})"


def main(place):
    if place == "-":
        query, files = FROM_LIST.format(struct=STRUCT), "/dev/stdin"
    else:
        folder = Path(place) / "tensors"
        if not any(folder.glob("*.json")):
            sys.exit(f"{folder}: there are no descriptions of tensors; MNT is where a model is mounted")
        query, files = FROM_MOUNT.format(columns=COLUMNS), str(folder / "*.json")
    duckdb.execute(f"CREATE TEMP TABLE tensors AS {query}", [files])

    print("bytes by type:")
    duckdb.sql("SELECT dtype, count(*) AS tensors, sum(nbytes) AS bytes FROM tensors GROUP BY dtype ORDER BY bytes DESC").show()
    print("bytes by layer:")
    duckdb.sql(r"""
        SELECT try_cast(regexp_extract(name, '(?:^|\.)(\d+)\.', 1) AS INTEGER) AS layer, count(*) AS tensors,
               sum(nbytes) AS bytes, string_agg(DISTINCT dtype, ', ' ORDER BY dtype) AS types
        FROM tensors GROUP BY layer ORDER BY layer NULLS FIRST
    """).show(max_rows=200)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} MNT|-")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough, as head has, ends it quietly
    main(sys.argv[1])
