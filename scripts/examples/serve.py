#!/usr/bin/env python3
# Serves the tensors of a mount over HTTP, any range of any of them, many at once; damage ends as an error there, too.
# Run: python3 serve.py MNT [PORT]        then e.g. curl -r 0-1023 http://127.0.0.1:8000/tensors/output.weight.bin

import asyncio
import os
import re
import sys

import aiofiles
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse

app = FastAPI(title="weights")


def look_at(path):
    """The size of a file and, where its model is sealed, the checksum of its bytes."""
    if not os.path.isfile(path):
        raise HTTPException(404)
    size = os.stat(path).st_size
    try:
        return size, f'"{os.getxattr(path, "user.weightfs.crc32").decode()}-{size}"'
    except OSError:
        return size, None


def asked(request, size, etag):
    """First byte and end of the range that was asked for; None: the whole file."""
    words = re.fullmatch(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))", request.headers.get("range", ""))
    if not words or request.method != "GET" or request.headers.get("if-range", etag) != etag:
        return None
    first, last, suffix = words.groups()
    begin = int(first) if first else max(size - int(suffix), 0)
    end = min(int(last) + 1, size) if last else size
    if begin >= end:
        raise HTTPException(416, headers={"content-range": f"bytes */{size}"})
    return begin, end


async def blocks(path, begin, end):
    """These bytes of the file; an error breaks the connection off before all of them are there."""
    async with aiofiles.open(path, "rb", buffering=0) as file:
        while begin < end:
            await file.seek(begin)
            block = await file.read(min(1 << 20, end - begin))
            if not block:
                raise EOFError(f"{path} ends at {begin}, not {end}")
            yield block
            begin += len(block)


@app.api_route("/{view}/{name}", methods=["GET", "HEAD"])
async def tensor(view: str, name: str, request: Request):
    if view not in ("tensors", "f32", "f16", "bf16"):
        raise HTTPException(404)
    path = os.path.join(sys.argv[1], view, name)
    size, etag = await asyncio.to_thread(look_at, path)
    part = asked(request, size, etag)
    begin, end = part or (0, size)
    headers = {"accept-ranges": "bytes", "content-length": str(end - begin)}
    if part:
        headers["content-range"] = f"bytes {begin}-{end - 1}/{size}"
    if etag:
        headers["etag"] = etag
    if request.method == "HEAD":
        return Response(headers=headers)
    return StreamingResponse(blocks(path, begin, end), 206 if part else 200, headers)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} MNT [PORT]")
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]) if len(sys.argv) == 3 else 8000)
