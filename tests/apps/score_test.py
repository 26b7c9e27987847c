"""deepinfer score."""

import json
import math
import unittest

from program import MODEL, ProgramTest, json_lines, read_safetensors, run, tiny_model_without_tokenizer

TEXT = "The history of the city begins in the early years."


def score(*arguments, model=MODEL, **options):
    return run("score", "--model", model, *arguments, **options)


class Score(ProgramTest):
    def batch(self, entries, *arguments, **options):
        return score("--input", self.write("in.jsonl", json_lines(entries)), *arguments, **options)

    def test_record_holds_a_logprob_per_token_and_their_perplexity(self):
        (record,) = self.assert_runs(self.batch([{"id": "a", "text": TEXT}])).records()
        self.assertEqual(set(record), {"id", "token_ids", "logprobs", "perplexity", "usage", "system_fingerprint"})
        ids = json.loads(run("tokenize", "--model", MODEL, "--json", TEXT).out)
        self.assertEqual(record["token_ids"], ids)
        self.assertIsNone(record["logprobs"][0])
        logprobs = record["logprobs"][1:]
        self.assertEqual(len(logprobs), len(ids) - 1)
        self.assertTrue(all(value < 0 for value in logprobs))
        self.assertAlmostEqual(record["perplexity"] / math.exp(-sum(logprobs) / len(logprobs)), 1, places=9)
        self.assertEqual(record["usage"], {"prompt_tokens": len(ids), "completion_tokens": 0})

    def test_generate_reports_the_same_bits(self):
        (made,) = run("generate", "--model", MODEL, "--tokens", "0,372,4067,553", "--max-tokens", "12", "--seed", "5",
                      "--ignore-eos", "--logprobs", "0", "--json").records()
        tokens = [0, 372, 4067, 553] + made["token_ids"]
        (scored,) = self.assert_runs(self.batch([{"id": "a", "tokens": tokens}])).records()
        self.assertEqual(scored["logprobs"][4:], [entry["logprob"] for entry in made["logprobs"]])
        self.assertEqual(scored["system_fingerprint"], made["system_fingerprint"])

    def test_one_token_has_no_prediction(self):
        (record,) = self.assert_runs(self.batch([{"id": "a", "tokens": [5]}])).records()
        self.assertEqual((record["logprobs"], record["perplexity"]), ([None], None))

    def test_bad_lines_get_error_records_and_stop_nobody(self):
        bad = ["{", '{"id": "b"}', '{"id": "b", "text": "x", "temperature": 1}', '{"id": "b", "tokens": []}',
               '{"id": "b", "tokens": [4096]}', '{"id": "b", "tokens": [-1]}', '{"id": "b", "text": ""}',
               '{"id": "b", "text": "x", "prompt": "x"}', '{"id": "b", "text": null}']
        entries = []
        for line in bad:
            entries += [line, {"id": "good", "prompt": "A good line."}]
        result = self.batch(entries)
        self.assertEqual(result.code, 0)
        self.assertEqual(result.err, f"deepinfer: {len(bad)} of {len(entries)} records hold an error\n")
        for number, record in enumerate(result.records(), 1):
            with self.subTest(number=number):
                if number % 2 == 0:
                    self.assertNotIn("error", record)
                    self.assertEqual(record["id"], "good")
                else:
                    self.assertIn(f"line {number}", record["error"])
                    self.assertEqual((record["logprobs"], record["perplexity"]), ([], None))

    def test_logits_agree_with_the_logprobs(self):
        logits = self.folder / "logits.safetensors"
        entries = [{"id": "a", "text": "The first entry"}, "{", {"id": 7, "tokens": [1, 2, 3]}]
        records = self.batch(entries, "--logits", logits).records()
        tensors = read_safetensors(logits)
        self.assertEqual(set(tensors), {"a", "7"})
        for record in (records[0], records[2]):
            dtype, shape, values = tensors[str(record["id"])]
            self.assertEqual((dtype, shape), ("F32", [len(record["token_ids"]), 4096]))
            for i, logprob in enumerate(record["logprobs"][1:]):
                row = values[4096 * i:4096 * (i + 1)]
                top = max(row)
                total = math.fsum(math.exp(value - top) for value in row)
                expected = row[record["token_ids"][i + 1]] - top - math.log(total)
                self.assertAlmostEqual(logprob, expected, delta=1e-4)

    def test_dump_names_the_intermediates(self):
        dump = self.folder / "dump.safetensors"
        self.assert_runs(self.batch([{"id": "a", "tokens": [1, 2, 3, 4]}], "--dump", dump))
        single = read_safetensors(dump)
        self.assertIn("layers.0.attn_in", single)
        self.assertEqual(single["layers.0.attn_in"][1][0], 4)
        self.assert_runs(self.batch([{"id": "a", "tokens": [1, 2, 3, 4]}, {"id": "b", "tokens": [5, 6]}],
                                    "--dump", dump))
        double = read_safetensors(dump)
        self.assertEqual({name.split("/")[0] for name in double}, {"a", "b"})
        self.assertEqual(double["a/layers.0.attn_in"], single["layers.0.attn_in"])

    def test_exact_numerics_are_another_family(self):
        entries = [{"id": "a", "tokens": [1, 2, 3, 4]}]
        (engine,) = self.assert_runs(self.batch(entries)).records()
        (exact,) = self.assert_runs(self.batch(entries, "--numerics", "exact")).records()
        self.assertNotEqual(engine["system_fingerprint"], exact["system_fingerprint"])
        self.assertNotEqual(engine["logprobs"], exact["logprobs"])
        self.assert_refused(self.batch(entries, "--numerics", "vague"), "vague")

    def test_ids_must_differ_where_they_name_tensors(self):
        entries = [{"id": "a", "tokens": [1, 2]}, {"id": "a", "tokens": [3]}]
        self.assertEqual(len(self.assert_runs(self.batch(entries)).records()), 2)
        self.assert_refused(self.batch(entries, "--logits", self.folder / "l"), "line 2", '"a"', "--logits")
        self.assertFalse((self.folder / "l").exists())

    def test_tokens_need_no_tokenizer(self):
        bare = tiny_model_without_tokenizer(self.folder)
        entries = [{"id": "a", "tokens": [1, 2]}]
        self.assertEqual(self.assert_runs(self.batch(entries, model=bare)).out, self.batch(entries).out)
        self.assertIn("tokenizer.json", self.batch([{"id": "a", "text": "x"}], model=bare).records()[0]["error"])

    def test_no_flag_about_speed_changes_a_byte(self):
        entries = [{"id": "a", "text": TEXT * 4}, {"id": "b", "tokens": [5]}]
        reference = self.assert_runs(self.batch(entries)).out
        for flags in [("--threads", "1"), ("--prefill-chunk", "1"), ("--prefill-chunk", "7"), ("--max-batch", "1")]:
            with self.subTest(flags=flags):
                self.assertEqual(self.assert_runs(self.batch(entries, *flags)).out, reference)

    def test_unwritable_files_are_refused(self):
        entries = [{"id": "a", "tokens": [1, 2]}]
        self.assert_refused(self.batch(entries, "--logits", self.folder / "no" / "l"), "no/l")
        self.assert_refused(self.batch(entries, "--dump", self.folder / "no" / "d"), "no/d")
        self.assert_refused(self.batch(entries, "--output", "/dev/full"), "/dev/full", "No space left")
        self.assert_refused(score("--input", self.folder / "absent"), "absent")
        self.assert_refused(score("--input", self.folder), "directory")


if __name__ == "__main__":
    unittest.main()
