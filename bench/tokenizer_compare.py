"""Compares the tokenizer with PyPI's `tokenizers`: the same ids, and how much faster.

Usage: tokenizer_compare.py BENCH_PROGRAM MODEL_DIR [MEGABYTES]
Runs tokenizer_bench, then encodes the texts that it wrote, cut into documents of about 16 KB, with one
thread of `tokenizers`. Says so and ends well if that package is not installed.
"""

import array
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
DOCUMENT_CHARS = 16384


def documents(text):
    """Cuts behind line ends, so that both sides see the same pieces."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + DOCUMENT_CHARS)
        end = len(text) if end < 0 else end + 1
        yield text[begin:end]
        begin = end


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        print("tokenizer_compare: the package `tokenizers` is not installed, nothing is compared")
        return
    program, model = sys.argv[1:3]
    megabytes = sys.argv[3] if len(sys.argv) > 3 else "4"
    other = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    with tempfile.TemporaryDirectory() as folder:
        table = subprocess.run([program, "--model", model, "--megabytes", megabytes, "--write", folder],
                               check=True, capture_output=True, text=True).stdout
        print(table)
        rates = {line[:18].strip(): float(line[40:54]) for line in table.splitlines()[2:]}
        print(f"{'text':<18}{'ids':>10}{'tokenizers MB/s':>18}{'times faster':>14}")
        for name, rate in rates.items():
            text = (Path(folder) / f"{name}.txt").read_bytes().decode()
            # Whole for the ids; the package is quadratic on some hostile texts, so those are cut short.
            whole = text if name in ("english", "chinese", "code") else text[:100_000]
            if whole is text:
                ids = array.array("i", (Path(folder) / f"{name}.ids").read_bytes())
                same = list(ids) == other.encode(whole, add_special_tokens=False).ids
            start = time.process_time()
            for document in documents(whole):
                other.encode(document, add_special_tokens=False)
            theirs = len(whole.encode()) / 1e6 / (time.process_time() - start)
            verdict = ("same" if same else "DIFFERENT") if whole is text else "-"
            print(f"{name:<18}{verdict:>10}{theirs:>18.2f}{rate / theirs:>14.1f}")


if __name__ == "__main__":
    main()
