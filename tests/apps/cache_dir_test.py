"""generate --cache-dir: restarts, damaged files, kill -9 and full disks change no output (field case E07)."""

import random
import resource
import shutil
import signal
import subprocess
import time
import unittest

from program import BINARY, MODEL, ProgramTest, json_lines, run

SEED = 20261201
TEXT = "Once upon a time there was a girl who liked to eat oranges in a little cottage near the sea. "


class CacheDir(ProgramTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        entries = [{"id": str(i), "prompt": TEXT * (4 + i) + str(i % 3)} for i in range(6)]
        self.input = self.write("prompts.jsonl", json_lines(entries + entries[:3]))
        self.cache = self.folder / "cache"
        self.cold = self.assert_runs(run(*self.arguments())).records()

    def arguments(self, *more):
        return ("generate", "--model", MODEL, "--input", self.input, "--temperature", "0", "--max-tokens", "6",
                "--max-batch", "2", *more)

    def generate(self, *more, **options):
        """Answers with the folder; what it warns of is returned, too."""
        result = run(*self.arguments("--cache-dir", self.cache, *more), **options)
        self.assertEqual(result.code, 0, f"seed {SEED}: {result.err}")
        return result.records(), result.err

    def assert_cold(self, records):
        self.assertEqual(records, self.cold, f"seed {SEED}")

    def segments(self):
        return sorted(self.cache.rglob("segment-*"))

    def test_restarts_find_what_was_kept(self):
        self.assert_cold(self.generate()[0])
        size = sum(file.stat().st_size for file in self.segments())
        self.assertGreater(size, 0)
        self.assert_cold(self.generate()[0])
        # Nothing is kept twice.
        self.assertLess(sum(file.stat().st_size for file in self.segments()), 1.5 * size)

    def damaged(self, change):
        """Fills the folder, damages every file by `change`, and asks twice."""
        shutil.rmtree(self.cache, ignore_errors=True)
        self.generate()
        files = self.segments()
        self.assertTrue(files)
        for file in files:
            change(file)
        self.assert_cold(self.generate()[0])
        records, warnings = self.generate()
        self.assert_cold(records)
        self.assertEqual(warnings, "")  # what was bad is not tried again

    def test_a_flipped_byte_is_a_miss(self):
        def flip(file):
            data = bytearray(file.read_bytes())
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            file.write_bytes(data)
        for _ in range(3):
            self.damaged(flip)

    def test_half_a_file_ends_at_its_last_whole_record(self):
        self.damaged(lambda file: file.write_bytes(file.read_bytes()[:file.stat().st_size // 2]))

    def test_an_empty_file_is_no_file(self):
        self.damaged(lambda file: file.write_bytes(b""))

    def test_records_in_each_others_place_are_misses(self):
        def swap(file):
            data = file.read_bytes()
            half = len(data) // 2
            file.write_bytes(data[half:] + data[:half])
        self.damaged(swap)

    def test_kill_9_at_any_moment_loses_no_answer(self):
        for _ in range(6):
            process = subprocess.Popen([BINARY, *map(str, self.arguments("--cache-dir", self.cache))],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(self.random.uniform(0.05, 1.0))  # the moment is what is tested
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.assert_cold(self.generate()[0])

    def test_a_full_disk_ends_caching_and_nothing_else(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes fail instead
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        for _ in range(2):
            self.assert_cold(self.generate(preexec_fn=limit)[0])
        self.assert_cold(self.generate()[0])

    def test_a_folder_in_use_or_unusable_is_refused(self):
        file = self.write("file", b"")
        self.assert_refused(run(*self.arguments("--cache-dir", file)), "file")
        self.assert_refused(run(*self.arguments("--cache-dir", self.cache, "--cache-dir-gib", "0")), "--cache-dir-gib")


if __name__ == "__main__":
    unittest.main()
