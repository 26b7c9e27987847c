"""Runs the program for the end-to-end tests: its path and the source folder come from the environment."""

import array
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
BINARY = os.environ["DEEPINFER_BINARY"]
SOURCE = Path(os.environ["DEEPINFER_SOURCE_DIR"])
MODEL = SOURCE / "models" / "tiny-v41"
GOLDENS = SOURCE / "tests" / "data"
TIMEOUT_S = 300


class Result:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr.decode()

    def records(self):
        return [json.loads(line) for line in self.out.decode().splitlines()]


def run(*arguments, stdin=b"", **options):
    """Runs the program and returns its exit code, output (bytes) and errors (text)."""
    command = [BINARY] + [str(a) if not isinstance(a, bytes) else a for a in arguments]
    if "stdout" not in options:
        options["stdout"] = subprocess.PIPE
    process = subprocess.run(command, input=stdin, stderr=subprocess.PIPE, timeout=TIMEOUT_S, **options)
    return Result(process)


def json_lines(entries):
    """JSONL as bytes; strings are taken as they are, so that lines can be wrong."""
    lines = [entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False) for entry in entries]
    return "".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass")


def read_safetensors(path):
    """{name: (dtype, shape, values)} of a small file."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    codes = {"F32": "f", "I32": "i", "I64": "q", "U8": "B", "U16": "H"}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = array.array(codes[entry["dtype"]])
        values.frombytes(data[begin:end])
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors


class ProgramTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def assert_runs(self, result):
        self.assertEqual((result.code, result.err), (0, ""))
        return result

    def assert_refused(self, result, *words, code=2):
        """Bad input: exit code 2 and one line on stderr that holds all the words."""
        self.assertEqual(result.code, code, result.err)
        self.assertEqual(result.err.count("\n"), 1, result.err)
        self.assertTrue(result.err.startswith("deepinfer: "), result.err)
        for word in words:
            self.assertIn(word, result.err)
        return result


def tiny_model_without_tokenizer(folder):
    """A folder of links to everything of the tiny model but the tokenizer."""
    target = Path(folder) / "no-tokenizer"
    target.mkdir()
    for file in MODEL.iterdir():
        if not file.name.startswith("tokenizer"):
            (target / file.name).symlink_to(file)
    return target
