"""deepinfer generate against what happens to its streams: readers that leave, full disks, signals, slow writers."""

import json
import os
import select
import signal
import subprocess
import unittest

from program import BINARY, MODEL, TIMEOUT_S, ProgramTest, json_lines

LONG = {"prompt": "Once upon a time", "max_tokens": 100000, "ignore_eos": True}
SHORT = {"prompt": "Once upon a time", "max_tokens": 2}


class Streams(ProgramTest):
    def start(self, *arguments, **options):
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([BINARY, "generate", "--model", str(MODEL), *map(str, arguments)], **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                self.addCleanup(stream.close)
        return process

    def read_some(self, stream):
        ready, _, _ = select.select([stream], [], [], TIMEOUT_S)
        self.assertTrue(ready, "no output in time")
        return os.read(stream.fileno(), 1 << 16)

    def test_text_comes_while_it_is_made(self):
        process = self.start("--prompt", "Once upon a time", "--max-tokens", "100000", "--ignore-eos")
        self.assertTrue(self.read_some(process.stdout))
        self.assertIsNone(process.poll())

    def test_interrupt_ends_a_stream_cleanly(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                process = self.start("--prompt", "Once upon a time", "--max-tokens", "100000", "--ignore-eos")
                self.read_some(process.stdout)
                process.send_signal(number)
                out, err = process.communicate(timeout=TIMEOUT_S)
                self.assertEqual((process.returncode, err), (128 + number, b""))
                self.assertTrue(out.endswith(b"\n"))

    def test_interrupt_keeps_whole_records(self):
        path = self.write("in.jsonl", json_lines([SHORT, SHORT, LONG, SHORT]))
        process = self.start("--input", path)
        out = self.read_some(process.stdout)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(err.count(b"\n"), 1, err)
        lines = (out + rest).decode().splitlines(keepends=True)
        self.assertIn(len(lines), (1, 2))
        for line in lines:
            self.assertTrue(line.endswith("\n"))
            self.assertEqual(json.loads(line)["usage"]["completion_tokens"], 2)

    def test_interrupt_while_waiting_for_a_line(self):
        process = self.start("--input", "-")
        process.stdin.write(json_lines([SHORT]))
        process.stdin.flush()
        self.read_some(process.stdout)
        process.send_signal(signal.SIGINT)
        # The pipe stays open: only the signal can end the wait.
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 130)

    def test_record_comes_before_the_next_line_is_sent(self):
        process = self.start("--input", "-")
        for number in range(3):
            process.stdin.write(json_lines([{**SHORT, "id": number}]))
            process.stdin.flush()
            self.assertEqual(json.loads(self.read_some(process.stdout))["id"], number)
        process.stdin.close()
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 0)

    def test_reader_that_goes_away_ends_the_program_quietly(self):
        process = self.start("--prompt", "Once upon a time", "--max-tokens", "100000", "--ignore-eos")
        self.read_some(process.stdout)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 141)
        self.assertEqual(process.stderr.read(), b"")

    def test_full_disk_is_one_sentence(self):
        path = self.write("in.jsonl", json_lines([SHORT, LONG]))
        process = self.start("--input", path, "--output", "/dev/full")
        _, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 2, err)
        self.assertEqual(err.count(b"\n"), 1, err)
        self.assertIn(b"/dev/full: cannot write: No space left", err)

    def test_file_that_may_not_grow_keeps_whole_records(self):
        path, out = self.write("in.jsonl", json_lines([SHORT] * 8)), self.folder / "out.jsonl"
        # In blocks of 512 bytes (dash) or 1024 (bash): room for some records, not for all; SIGXFSZ becomes EFBIG.
        script = 'trap "" XFSZ; ulimit -f 1; exec "$@"'
        done = subprocess.run(["sh", "-c", script, "sh", BINARY, "generate", "--model", str(MODEL), "--input", str(path),
                               "--output", str(out)], capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"out.jsonl: cannot write: File too large", done.stderr)
        lines = out.read_text().splitlines(keepends=True)
        self.assertTrue(0 < len(lines) < 8)
        for line in lines:
            json.loads(line)


if __name__ == "__main__":
    unittest.main()
