#!/usr/bin/env python3
# Puts the first rows of an embedding matrix into Qdrant, straight from the mount, and searches the neighbours of one.
# Run: python3 qdrant_rows.py MNT TENSOR [ROWS [ROW]]        e.g. /mnt/m embeddings.word_embeddings.weight 5000 2013

import signal
import sys
from pathlib import Path

import numpy as np
from qdrant_client import QdrantClient, models


def main(mount, name, rows=2000, row=0):
    # Quantised or not: f32/ has every row, decoded while it is read.
    file = mount / "f32" / f"{name}.npy"
    if not file.is_file():
        sys.exit(f"{file}: there is no such file; MNT/f32 has one of each tensor with float values")
    matrix = np.load(file, mmap_mode="r")
    if matrix.ndim != 2:
        sys.exit(f"{file}: a matrix is needed, this has the shape {list(matrix.shape)}")
    rows = min(rows, len(matrix))
    if not 0 <= row < rows:
        sys.exit(f"{name}: row {row} is not one of the first {rows}")

    client = QdrantClient(":memory:")  # or QdrantClient(url=...)
    size = models.VectorParams(size=matrix.shape[1], distance=models.Distance.EUCLID)
    client.create_collection("rows", vectors_config=size)
    client.upload_collection("rows", vectors=matrix[:rows], ids=range(rows), batch_size=256)

    for hit in client.query_points("rows", query=matrix[row].tolist(), limit=5).points:
        print(f"row {hit.id:6d}  distance {hit.score:.4f}")

    # The same with Weaviate; its embedded form fetches a server when it starts, so no test runs this:
    #   table = weaviate.connect_to_local().collections.create("Rows", vector_config=Configure.Vectors.self_provided())
    #   table.data.insert_many([DataObject(properties={"row": i}, vector=matrix[i].tolist()) for i in range(rows)])
    #   print([hit.properties["row"] for hit in table.query.near_vector(matrix[row].tolist(), limit=5).objects])


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(f"usage: {sys.argv[0]} MNT TENSOR [ROWS [ROW]]")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough, as head has, ends it quietly
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
