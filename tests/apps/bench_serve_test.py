"""`bench serve` and `bench sweep` against a running server."""

import csv
import json
import unittest
import xml.dom.minidom

from program import ProgramTest, json_lines, run
from server import Server


class BenchServe(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "512", "--max-batch", "4")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def bench(self, *flags):
        return json.loads(self.assert_runs(run("bench", "serve", "--url", self.server.url, "--json", *flags)).out)

    def test_counts_what_was_asked(self):
        report = self.bench("--requests", 6, "--concurrency", 3, "--input-len", "20:40", "--output-len", 5)
        self.assertEqual((report["requests"], report["failed"], report["completion_tokens"]), (6, 0, 30))
        self.assertTrue(120 <= report["prompt_tokens"] <= 240)
        self.assertLessEqual(report["first_token_ms"]["p50"], report["first_token_ms"]["p99"])
        self.assertLess(report["first_token_ms"]["p99"], report["end_to_end_ms"]["p99"])
        self.assertEqual(report["good_requests_per_s"], report["requests_per_s"])

    def test_goals_decide_what_is_good(self):
        report = self.bench("--requests", 2, "--output-len", 3, "--goal-end", "0.001")
        self.assertEqual(report["good_requests_per_s"], 0)
        self.assertGreater(report["requests_per_s"], 0)

    def test_same_seed_same_requests(self):
        flags = ["--requests", 4, "--rate", 50, "--input-len", "5:60", "--output-len", 2, "--shared-prefix", 4]
        first, second = self.bench(*flags), self.bench(*flags)
        self.assertEqual(first["prompt_tokens"], second["prompt_tokens"])
        self.assertNotEqual(first["prompt_tokens"], self.bench(*flags, "--seed", 2)["prompt_tokens"])

    def test_reads_a_dataset(self):
        data = self.write("data.jsonl", json_lines([{"prompt": "Once", "max_tokens": 3}, {"tokens": [5, 6], "max_tokens": 2}]))
        self.assertLessEqual(self.bench("--dataset", data, "--requests", 4)["completion_tokens"], 10)
        chat = self.write("chat.jsonl", json_lines([{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}]))
        self.assertEqual(self.bench("--api", "chat", "--dataset", chat, "--requests", 1)["failed"], 0)
        self.assert_refused(run("bench", "serve", "--url", self.server.url, "--dataset", chat), "chat.jsonl", "line 1")

    def test_failures_are_counted(self):
        report = self.bench("--requests", 3, "--input-len", "10:900", "--output-len", 1, "--seed", 3)
        self.assertGreater(report["failed"], 0)
        self.assertIn("400", report["first_error"])
        self.assert_refused(run("bench", "serve", "--url", self.server.url, "--input-len", 600), "400")

    def test_sweep_draws_two_pictures(self):
        folder = self.folder / "sweep"
        self.assert_runs(run("bench", "sweep", "--url", self.server.url, "--output", folder, "--users", "1,2",
                             "--prefill-lens", "16,48", "--input-len", 16, "--output-len", 8))
        for name, rows in [("decode", 2), ("prefill", 4)]:
            with open(folder / f"{name}.csv", newline="") as file:
                lines = list(csv.DictReader(file))
            self.assertEqual(len(lines), rows)
            self.assertTrue(all(float(line["first_token_ms_p50"]) > 0 for line in lines))
            picture = xml.dom.minidom.parse(str(folder / f"{name}.svg"))
            self.assertGreaterEqual(len(picture.getElementsByTagName("circle")), rows)

    def test_bad_flags_are_refused(self):
        for flags, word in [(["--url", "ftp://x"], "--url"), (["--url", "http://127.0.0.1:1"], "127.0.0.1:1"),
                            (["--input-len", "9:3"], "--input-len"), (["--rate", "0"], "--rate"), (["--api", "x"], "--api")]:
            with self.subTest(word):
                self.assert_refused(run("bench", "serve", *flags), word)


if __name__ == "__main__":
    unittest.main()
