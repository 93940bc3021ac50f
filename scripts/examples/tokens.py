#!/usr/bin/env python3
# Splits a text into tokens with the tokenizer that is inside a GGUF: a mount with map=hf shows it as tokenizer.json.
# Run: weightfs MODEL.gguf MNT -o map=hf && python3 tokens.py MNT "some text"

import signal
import sys
from pathlib import Path

from tokenizers import Tokenizer


def main(mount, text):
    file = mount / "hf" / "tokenizer.json"
    if not file.is_file():
        sys.exit(f"{file}: there is no such file; a GGUF with a tokenizer that is mounted with -o map=hf has one")
    tokenizer = Tokenizer.from_file(str(file))
    encoded = tokenizer.encode(text)
    for number, token, (begin, end) in zip(encoded.ids, encoded.tokens, encoded.offsets):
        print(f"{number:8d}  {token!r:20}  {text[begin:end]!r}")
    print(f"{len(encoded.ids)} tokens of {tokenizer.get_vocab_size()}: {encoded.ids}")
    print(f"and back: {tokenizer.decode(encoded.ids)!r}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} MNT TEXT")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough, as head has, ends it quietly
    main(Path(sys.argv[1]), sys.argv[2])
