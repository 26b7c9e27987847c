"""Conversations: deepinfer tokenize --messages, generate --chat and --messages, parse."""

import json
import os
import unittest

from program import MODEL, ProgramTest, run

BOS = "<｜begin▁of▁sentence｜>"
CALLS = ('<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n<｜DSML｜ parameter name="n" string="false">2'
         "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>")


class Chat(ProgramTest):
    def write(self, name, value):
        path = self.folder / name
        path.write_text(json.dumps(value))
        return path

    def prompt(self, messages, *arguments):
        file = self.write("messages.json", messages)
        return run("tokenize", "--model", MODEL, "--messages", file, *arguments)

    def test_tokenize_prints_the_exact_prompt(self):
        messages = [{"role": "user", "content": "hello"}]
        result = self.assert_runs(self.prompt(messages, "--thinking", "off"))
        self.assertEqual(result.out.decode(), BOS + "<｜User｜>hello<｜Assistant｜></think>")
        result = self.assert_runs(self.prompt(messages, "--effort", "low"))
        self.assertIn("Reasoning Effort: 50 (", result.out.decode())
        tools = self.write("tools.json", [{"type": "function", "function": {"name": "f"}}])
        result = self.assert_runs(self.prompt(messages, "--thinking", "off", "--tools", tools))
        self.assertIn('### Available Tool Schemas\n\n{"name": "f"}\n', result.out.decode())

    def test_tokenize_prints_ids_that_decode_to_the_prompt(self):
        messages = [{"role": "user", "content": "<think>"}, {"role": "assistant", "content": "one,"}]
        ids = self.assert_runs(self.prompt(messages, "--thinking", "off", "--print", "ids", "--continue"))
        text = self.assert_runs(self.prompt(messages, "--thinking", "off", "--continue")).out
        self.assertTrue(text.decode().endswith("</think>one,"))
        back = self.assert_runs(run("tokenize", "--model", MODEL, "--decode", stdin=ids.out))
        self.assertEqual(back.out, text)
        self.assertEqual(json.loads(ids.out).count(0), 1)

    def test_bad_conversations_are_refused(self):
        self.assert_refused(self.prompt([{"role": "cook"}]), "messages[0].role")
        self.assert_refused(self.prompt([{"role": "user"}], "--effort", "ultra"), "ultra")
        self.assert_refused(self.prompt([{"role": "user"}], "--thinking", "maybe"), "--thinking")
        self.assert_refused(self.prompt([{"role": "user"}], "--print", "all"), "--print")
        # The tiny vocabulary has no token for system messages.
        self.assert_refused(self.prompt([{"role": "user"}], "--print", "ids"), "<｜System｜>")

    def test_bad_files_are_refused(self):
        tokenize = ["tokenize", "--model", MODEL, "--messages"]
        for content, word in [(b"", "byte 1"), (b"{", "byte 2"), (b"[" * 1_000_000, "deeper"), (b'[{"role":"user"}]\0', "NUL"),
                              (b'["\xff"]', "UTF-8"), (b'[{"role":"user","content":1e400}]', "'1e400'"),
                              (b'[{"role":"user","role":"user"}]', "twice"), (b'[{"role":"\\ud800"}]', "surrogate")]:
            file = super().write("bad.json", content)
            self.assert_refused(run(*tokenize, file), "messages: ", word)
            self.assert_refused(run(*tokenize, "-", stdin=content), "messages: ", word)
            good = self.write("good.json", [{"role": "user", "content": "u"}])
            self.assert_refused(run(*tokenize, good, "--tools", file), "tools: ", word)
            self.assert_refused(run("parse", "--tools", file), "tools: ", word)
        self.assert_refused(run(*tokenize, self.folder / "absent"), "absent")
        self.assert_refused(run(*tokenize, self.folder), str(self.folder))

    def test_flags_that_would_do_nothing_are_refused(self):
        file = self.write("m.json", [{"role": "user", "content": "u"}])
        for flag in [["--thinking", "off"], ["--effort", "low"], ["--tools", file], ["--continue"]]:
            self.assert_refused(run("tokenize", "--model", MODEL, "text", *flag), flag[0], "--messages")
            self.assert_refused(run("generate", "--model", MODEL, "--prompt", "x", *flag), flag[0], "--messages")
        self.assert_refused(run("tokenize", "--model", MODEL, "text", "--print", "ids"), "--print")
        self.assert_refused(self.prompt([{"role": "user"}], "--print", "prompt", "--json"), "--json")
        self.assert_refused(self.prompt([{"role": "user"}], "--effort", ""), "--effort")
        for command in [["tokenize", "--model", MODEL, "--messages", file], ["parse"]]:
            self.assert_refused(run(*command, "--tools", "-", stdin=b"[]"), "--tools")

    def test_streams_that_fail(self):
        file = self.write("m.json", [{"role": "user", "content": "u"}])
        for command in [["tokenize", "--model", MODEL, "--messages", file], ["parse"]]:
            with open("/dev/full", "wb") as full:
                result = run(*command, stdin=b"x", stdout=full)
            self.assertEqual(result.code, 2)
            self.assertIn("standard output", result.err)
            reader, writer = os.pipe()
            os.close(reader)
            result = run(*command, stdin=b"x", stdout=writer)
            os.close(writer)
            self.assertEqual((result.code, result.err), (141, ""))

    def test_generate_answers_conversations(self):
        plain_flags = ["--temperature", "0", "--max-tokens", "8", "--json"]
        flags = ["--thinking", "off", *plain_flags]
        chat = self.assert_runs(run("generate", "--model", MODEL, "--chat", 'Say "hi"', *flags)).records()[0]
        file = self.write("m.json", [{"role": "user", "content": 'Say "hi"'}])
        messages = self.assert_runs(run("generate", "--model", MODEL, "--messages", file, *flags)).records()[0]
        prompt = BOS + '<｜User｜>Say "hi"<｜Assistant｜></think>'
        plain = self.assert_runs(run("generate", "--model", MODEL, "--prompt", prompt, *plain_flags)).records()[0]
        self.assertEqual(chat["token_ids"], plain["token_ids"])
        self.assertEqual(messages["token_ids"], plain["token_ids"])
        lines = self.folder / "in.jsonl"
        lines.write_text(json.dumps({"id": "a", "messages": [{"role": "user", "content": 'Say "hi"'}]}) + "\n"
                         + json.dumps({"id": "b", "messages": [{"role": "cook"}]}) + "\n")
        records = run("generate", "--model", MODEL, "--input", lines, *flags[:-1]).records()
        self.assertEqual(records[0]["token_ids"], plain["token_ids"])
        self.assertIn("messages[0].role", records[1]["error"])

    def parse(self, text, *arguments):
        return json.loads(self.assert_runs(run("parse", *arguments, stdin=text.encode())).out)

    def test_parse_prints_a_message(self):
        text = "why</think>So:\n\n" + CALLS + "<｜end▁of▁sentence｜>"
        expected = {"role": "assistant", "content": "So:", "reasoning_content": "why",
                    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"n": 2}'}}],
                    "malformed": False}
        for chunk in ["0", "1", "7"]:
            for strict in [[], ["--strict"]]:
                self.assertEqual(self.parse(text, "--chunk", chunk, *strict), expected)

    def test_parse_takes_the_flags_of_the_request(self):
        message = self.parse("answer STOP rest", "--thinking", "off", "--stop", "STOP")
        self.assertEqual(message["content"], "answer ")
        self.assertEqual(self.parse("thought")["content"], "thought")
        self.assertEqual(self.parse("thought", "--cut-off")["reasoning_content"], "thought")
        broken = self.parse("a <｜DSML｜ calls>b", "--thinking", "off")
        self.assertEqual((broken["content"], broken["malformed"]), ("a <｜DSML｜ calls>b", True))
        self.assert_refused(run("parse", "--stop", ""), "stop[0]")


if __name__ == "__main__":
    unittest.main()
