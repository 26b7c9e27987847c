"""deepinfer tokenize."""

import json
import os
import unittest

from program import GOLDENS, MODEL, ProgramTest, run


def ids_of(result):
    return json.loads(result.out)


class Tokenize(ProgramTest):
    def setUp(self):
        super().setUp()
        # Only tokenizer.json is needed.
        self.model = self.folder / "model"
        self.model.mkdir()
        (self.model / "tokenizer.json").symlink_to(MODEL / "tokenizer.json")

    def tokenize(self, *arguments, **options):
        return run("tokenize", "--model", self.model, *arguments, **options)

    def test_goldens_are_met_and_decode_to_their_text(self):
        goldens = json.loads((GOLDENS / "tokenizer" / "tiny.json").read_text())
        cases = goldens["cases"] if isinstance(goldens, dict) else goldens
        self.assertGreater(len(cases), 10)
        # One process per case would take most of the time to load the vocabulary.
        for case in cases[:8]:
            with self.subTest(text=case["text"]):
                text = case["text"].encode()
                result = self.assert_runs(self.tokenize("--json", stdin=text))
                self.assertEqual(ids_of(result), case["ids"])
                back = self.assert_runs(self.tokenize("--decode", stdin=result.out))
                self.assertEqual(back.out, text)

    def test_standard_input_is_taken_byte_for_byte(self):
        for data in [b"", b"\n", b"two\r\nlines\n", b"nul \0 nul", bytes(range(256)), b"\xff\xfe\xc3",
                     "naïve — 你好 😀\n".encode()]:
            with self.subTest(data=data):
                ids = self.assert_runs(self.tokenize("--json", stdin=data))
                self.assertEqual(self.assert_runs(self.tokenize("--decode", stdin=ids.out)).out, data)

    def test_argument_is_the_same_as_standard_input(self):
        for text in ["Hello, world!", "", "[1,2]", "a,b", "--dashes", "tail "]:
            with self.subTest(text=text):
                from_argument = self.assert_runs(self.tokenize("--json", "--", text))
                self.assertEqual(from_argument.out, self.tokenize("--json", stdin=text.encode()).out)

    def test_output_for_people_has_one_line_per_token(self):
        ids = ids_of(self.tokenize("--json", "Hello, world!"))
        lines = self.assert_runs(self.tokenize("Hello, world!")).out.decode().splitlines()
        self.assertEqual([int(line.split("\t")[0]) for line in lines], ids)
        self.assertEqual("".join(json.loads(line.split("\t")[1]) for line in lines), "Hello, world!")

    def test_special_tokens_are_parsed_unless_plain(self):
        self.assertEqual(ids_of(self.tokenize("--json", "<｜end▁of▁sentence｜>")), [1])
        self.assertGreater(len(ids_of(self.tokenize("--json", "--plain", "<｜end▁of▁sentence｜>"))), 1)

    def test_decoded_text_as_json_replaces_broken_bytes(self):
        ids = self.tokenize("--json", stdin=b"a\xffb")
        self.assertEqual(json.loads(self.tokenize("--decode", "--json", stdin=ids.out).out), "a\ufffdb")

    def test_bad_lists_of_ids_are_refused(self):
        for data, word in [(b"", "standard input"), (b"1,2", "standard input"), (b"[1,", "standard input"),
                           (b"{}", "list"), (b"[1.5]", "1.5"), (b'["1"]', '"1"'), (b"[-1]", "-1"),
                           (b"[99999999]", "99999999"), (b"[" * 100000, "standard input"), (b"\xff", "standard input")]:
            with self.subTest(data=data[:20]):
                self.assert_refused(self.tokenize("--decode", stdin=data), word)

    def test_folder_without_tokenizer_is_refused(self):
        self.assert_refused(run("tokenize", "--model", self.folder, "x"), "tokenizer.json")
        self.assert_refused(run("tokenize", "--model", self.folder / "absent", "x"), "absent")

    def test_broken_tokenizer_is_refused(self):
        for content in [b"", b"{}", b"[]", b"\xff\xfe", b'{"model": null}']:
            with self.subTest(content=content):
                os.makedirs(self.folder / "bad", exist_ok=True)
                self.write("bad/tokenizer.json", content)
                self.assert_refused(run("tokenize", "--model", self.folder / "bad", "x"), "tokenizer.json")


if __name__ == "__main__":
    unittest.main()
