"""deepinfer bench."""

import json
import unittest

from program import MODEL, ProgramTest, run

SMALL = ["--prompt-lengths", "3,17", "--batch-sizes", "1,2", "--new-tokens", "24"]


def bench(*arguments, **options):
    return run("bench", "--model", MODEL, *arguments, **options)


class Bench(ProgramTest):
    def test_json_holds_every_phase_and_operation(self):
        path = self.folder / "bench.json"
        self.assert_runs(bench(*SMALL, "--json", path))
        report = json.loads(path.read_text())
        self.assertEqual(report["model"], str(MODEL))
        self.assertGreater(report["limits"]["read_bytes_per_second"], 1e8)
        self.assertGreater(report["limits"]["operations_per_second"], 1e8)
        self.assertGreater(report["load_seconds"], 0)
        phases = [(p["kind"], p["prompt_length"], p["batch_size"]) for p in report["phases"]]
        self.assertEqual(phases, [("prefill", 3, 1), ("prefill", 17, 1), ("decode", 3, 1), ("decode", 3, 2),
                                  ("decode", 17, 1), ("decode", 17, 2)])
        for phase in report["phases"]:
            self.assertGreater(phase["tokens_per_second"], 0)
            latency = phase["latency_s"]
            self.assertLessEqual(0, latency["p50"])
            self.assertLessEqual(latency["p50"], latency["p90"])
            self.assertLessEqual(latency["p99"], latency["max"])
            operations = {o["name"]: o for o in phase["operations"]}
            for name in ("qkv", "sparse_attention", "experts", "logits", "sample"):
                self.assertGreater(operations[name]["calls"], 0)
                self.assertGreater(operations[name]["seconds"], 0)
                self.assertGreater(operations[name]["bytes"], 0)
                self.assertGreater(operations[name]["fraction_of_bound"], 0)
            self.assertGreater(operations["qkv"]["operations"], 0)

    def test_text_has_a_table_per_phase(self):
        out = self.assert_runs(bench(*SMALL)).out.decode()
        self.assertEqual(out.count("sparse_attention"), 6)
        self.assertEqual(out.count("prefill, prompts of"), 2)
        self.assertRegex(out, r"loaded in \d+\.\d+ s\nlimits of this run")

    def test_bad_flags_are_refused(self):
        for flags, words in [(["--prompt-lengths", "0"], ["--prompt-lengths", "0"]),
                             (["--prompt-lengths", ""], ["--prompt-lengths"]),
                             (["--batch-sizes", "1,x"], ["--batch-sizes", "x"]),
                             (["--new-tokens", "1"], ["--new-tokens", "1"]),
                             (["--prompt-lengths", "2000000000"], ["prompt"]),
                             (["--json", self.folder / "no" / "file"], ["file"])]:
            with self.subTest(flags=flags):
                self.assert_refused(bench(*flags), *words)


if __name__ == "__main__":
    unittest.main()
