"""The scenarios of api_scenarios.py with one client: `api_test.py curl` or `api_test.py openai`, the real Python package.

Exits with 77 (skipped) where the client is not installed.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import unittest

from api_scenarios import CHAT, COMPLETIONS, SCENARIOS
from server import parse_events, serving

SKIPPED = 77
PATHS = {CHAT: "/v1/chat/completions", COMPLETIONS: "/v1/completions", "responses": "/v1/responses"}


class Reply:
    """The answer to a scenario: `json` of a whole one, `events` of a stream, `error` of a refusal."""

    def __init__(self, status, content=None, events=None, error=None):
        self.status = status
        self.json = content
        self.events = events
        self.error = error


class Curl:
    def __init__(self, url):
        self.url = url

    def ask(self, route, body):
        command = ["curl", "-sS", "-N", "-w", "\n%{http_code}", "-H", "Content-Type: application/json", "-d", "@-",
                   self.url + PATHS[route]]
        done = subprocess.run(command, input=json.dumps(body).encode(), stdout=subprocess.PIPE, check=True, timeout=120)
        content, status = done.stdout.rsplit(b"\n", 1)
        if int(status) != 200:
            return Reply(int(status), error=json.loads(content)["error"])
        if body.get("stream"):
            events = parse_events(content)
            assert route == "responses" or events.pop() == "[DONE]"
            return Reply(200, events=events)
        return Reply(200, json.loads(content))


class OpenAI:
    # What the package's methods take by name; other fields travel in extra_body.
    OWN = {"messages", "prompt", "input", "model", "max_tokens", "max_completion_tokens", "max_output_tokens",
           "temperature", "top_p", "n", "seed", "stop", "stream", "stream_options", "logprobs", "top_logprobs",
           "logit_bias", "frequency_penalty", "presence_penalty", "user", "echo", "suffix", "tools", "tool_choice",
           "response_format", "parallel_tool_calls", "reasoning_effort"}

    def __init__(self, url):
        import openai
        self.package = openai
        self.client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        model = self.client.models.list().data[0].id
        self.defaults = {"model": model}

    def ask(self, route, body):
        methods = {CHAT: self.client.chat.completions, COMPLETIONS: self.client.completions,
                   "responses": self.client.responses}
        own = {name: value for name, value in body.items() if name in self.OWN}
        extra = {name: value for name, value in body.items() if name not in self.OWN}
        try:
            answer = methods[route].create(**{**self.defaults, **own}, extra_body=extra)
            if body.get("stream"):
                return Reply(200, events=[event.model_dump() for event in answer])
            return Reply(200, answer.model_dump())
        except self.package.APIStatusError as error:
            return Reply(error.status_code, error=error.body)


CLIENTS = {"curl": (Curl, lambda: shutil.which("curl")),
           "openai": (OpenAI, lambda: importlib.util.find_spec("openai"))}


class Scenarios(unittest.TestCase):
    client_type = None

    def test_all(self):
        with serving("--max-model-len", "512", "--max-batch", "8") as server:
            client = self.client_type(server.url)
            for name, route, body, check in SCENARIOS:
                with self.subTest(name):
                    check(self, client.ask(route, body))
            self.assertTrue(server.wait_idle())


if __name__ == "__main__":
    client, available = CLIENTS[sys.argv.pop(1)]
    if not available():
        print("skipped: the client is not installed")
        sys.exit(SKIPPED)
    Scenarios.client_type = client
    unittest.main()
