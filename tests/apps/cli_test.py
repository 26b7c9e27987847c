"""The command line itself: help, version, and what is wrong with it."""

import os
import subprocess
import unittest

from program import BINARY, MODEL, ProgramTest, run

COMMANDS = ["generate", "score", "devices", "inspect", "synth", "bench", "tokenize", "parse"]
if os.environ.get("DEEPINFER_SERVER") == "ON":
    COMMANDS.append("serve")


class CommandLine(ProgramTest):
    def test_help_lists_every_command(self):
        text = self.assert_runs(run("--help")).out.decode()
        for command in COMMANDS:
            self.assertIn(f"  {command} ", text)

    def test_every_command_has_help(self):
        for command in COMMANDS:
            with self.subTest(command):
                for flag in ["--help", "-h"]:
                    text = self.assert_runs(run(command, flag)).out.decode()
                    self.assertIn(f"deepinfer {command}", text)

    def test_version_is_three_numbers(self):
        self.assertRegex(self.assert_runs(run("--version")).out.decode(), r"^deepinfer \d+\.\d+\.\d+\n$")

    def test_missing_command_is_refused(self):
        self.assert_refused(run(), "sub-command")

    def test_unknown_command_is_refused_by_name(self):
        self.assert_refused(run("generat"), '"generat"')

    def test_unknown_flag_is_refused_by_name(self):
        for command in COMMANDS:
            with self.subTest(command):
                self.assert_refused(run(command, "--model", MODEL, "--no-such-flag"), command)
        self.assert_refused(run("tokenize", "--model", MODEL, "--no-such-flag"), "--no-such-flag")
        self.assert_refused(run("parse", "--first", "--second", "third"), "--first --second third")

    def test_an_empty_name_is_refused_by_its_flag(self):
        generate = ["generate", "--model", MODEL]
        self.assert_refused(run(*generate, "--prompt", "x", "--output", ""), "--output")
        for flag in ["--input", "--messages"]:
            self.assert_refused(run(*generate, flag, ""), flag)
        self.assert_refused(run(*generate, "--chat", "x", "--tools", ""), "--tools")
        self.assert_refused(run("score", "--model", MODEL, "--input", ""), "--input")
        self.assert_refused(run("tokenize", "--model", "", "x"), "--model")

    def test_missing_flag_is_refused_by_name(self):
        self.assert_refused(run("generate", "--prompt", "x"), "--model")
        self.assert_refused(run("score", "--model", MODEL), "--input")
        self.assert_refused(run("synth", "--preset", "nano"), "--out")
        self.assert_refused(run("tokenize"), "--model")
        self.assert_refused(run("inspect"), "directory")

    def test_missing_value_is_refused_by_name(self):
        self.assert_refused(run("generate", "--model", MODEL, "--prompt"), "--prompt")

    def test_flag_given_twice_is_refused(self):
        self.assert_refused(run("generate", "--model", MODEL, "--prompt", "a", "--prompt", "b"), "--prompt")

    def test_inputs_exclude_each_other(self):
        self.assert_refused(run("generate", "--model", MODEL, "--prompt", "a", "--tokens", "1"), "--prompt", "--tokens")
        self.assert_refused(run("generate", "--model", MODEL), "--prompt", "--tokens", "--input")

    def test_numbers_are_checked(self):
        for flag, value in [("--max-tokens", "0"), ("--max-tokens", "ten"), ("--max-tokens", "99999999999"),
                            ("--temperature", "nan"), ("--temperature", "hot"), ("--temperature", "-1"),
                            ("--top-p", "0.5x"), ("--top-p", "2"), ("--min-p", "-0.5"), ("--seed", "-1"),
                            ("--seed", "18446744073709551616"), ("--repetition-penalty", "0"), ("--threads", "-1"),
                            ("--prefill-chunk", "0"), ("--max-batch", "0"), ("--logprobs", "-1")]:
            with self.subTest(flag=flag, value=value):
                self.assert_refused(run("generate", "--model", MODEL, "--prompt", "a", flag, value))
        for value in ["1e39", "-1e999", "inf", "1e-99"]:
            with self.subTest(value=value):
                result = run("generate", "--model", MODEL, "--prompt", "a", "--temperature", value)
                self.assert_refused(result, f'"{value}" is out of the range of a float')

    def test_token_ids_are_checked(self):
        for ids in ["", ",", "1,,2", "1,x", "1, 2", "-1", "4294967296"]:
            with self.subTest(ids=ids):
                self.assert_refused(run("generate", "--model", MODEL, "--tokens", ids), "--tokens")

    def test_control_characters_in_an_error_stay_on_one_line(self):
        self.assert_refused(run("a\nb\x1b[31m"), r"a\x0ab\x1b[31m")

    def test_logprobs_need_a_record(self):
        self.assert_refused(run("generate", "--model", MODEL, "--prompt", "a", "--logprobs", "1"), "--logprobs")

    def test_closed_standard_streams_do_no_harm(self):
        for streams in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]:
            with self.subTest(streams=streams):
                script = f'exec "$0" --version {streams}'
                done = subprocess.run(["sh", "-c", script, BINARY], capture_output=True)
                self.assertEqual(done.returncode, 2 if ">&-" in streams.replace("2>&-", "") else 0, done.stderr)

    def test_reader_that_went_away_ends_the_program_quietly(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        result = run("--help", stdout=write_end)
        os.close(write_end)
        self.assertEqual((result.code, result.err), (141, ""))

    def test_full_disk_is_one_sentence(self):
        with open("/dev/full", "wb") as full:
            self.assert_refused(run("--help", stdout=full), "standard output", "No space left")


if __name__ == "__main__":
    unittest.main()
