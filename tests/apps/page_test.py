"""The chat page in headless Chromium, driven over the DevTools protocol's pipe. Skipped (77) without Chromium.

With DEEPINFER_SCREENSHOT=FILE.png a picture of the page is kept.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from server import serving

SKIPPED = 77
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_S = 60


class Browser:
    """One page of a headless Chromium."""

    def __init__(self):
        # Helper processes of the browser may still write into it while it is removed.
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.write_fd = os.pipe()
        self.read_fd, from_browser = os.pipe()
        # The protocol's pipe is descriptors 3 and 4 of the browser.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "chromium", CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--remote-debugging-pipe", "--disable-dev-shm-usage", "--no-first-run", "--window-size=900,700",
             f"--user-data-dir={self.profile.name}"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.number = 0
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                data = os.read(self.read_fd, 1 << 16)
                if not data:
                    raise AssertionError("the browser ended")
                self.buffer += data
            line, self.buffer = self.buffer.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(answer["error"])
                return answer["result"]

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression):
        """Waits until an expression is true, and returns it."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            value = self.evaluate(expression)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}\n" + str(self.evaluate("document.body.innerText")))

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        os.close(self.write_fd)
        os.close(self.read_fd)
        self.profile.cleanup()


SEND = "document.getElementById('input').value = {}; document.getElementById('form').requestSubmit()"


class ChatPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.serving = serving("--max-model-len", "1024")
        cls.server = cls.serving.__enter__()
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.serving.__exit__(None, None, None)

    def setUp(self):
        self.browser.call("Page.navigate", url=self.server.url + "/")
        self.browser.wait("document.readyState === 'complete' && document.getElementById('model').textContent")

    def send(self, text):
        self.browser.evaluate(SEND.format(json.dumps(text)))

    def test_names_no_other_address(self):
        page = self.server.get("/")
        for outside in ["http://", "https://", "//cdn", "@import", "src="]:
            self.assertNotIn(outside, page)

    def test_streams_an_answer_with_its_numbers(self):
        self.browser.evaluate("document.getElementById('max_tokens').value = 70;"
                              "document.getElementById('temperature').value = 0")
        self.send("Tell me a story.")
        stats = self.browser.wait("document.querySelector('.stats')?.textContent")
        for part in ["prompt tokens", "cached", "tokens/s", "first after"]:
            self.assertIn(part, stats)
        self.assertTrue(self.browser.evaluate("document.querySelector('.assistant .text').textContent"))
        self.assertEqual(self.browser.evaluate("document.querySelector('.user .text').textContent"), "Tell me a story.")
        self.send("And then?")
        self.browser.wait("document.querySelectorAll('.stats').length === 2")
        # The first page of 64 tokens is now in the cache.
        self.send("Go on, please.")
        self.browser.wait("document.querySelectorAll('.stats').length === 3")
        stats = self.browser.evaluate("[...document.querySelectorAll('.stats')].at(-1).textContent")
        self.assertIn(" 64 cached", stats)
        if path := os.environ.get("DEEPINFER_SCREENSHOT"):
            picture = self.browser.call("Page.captureScreenshot", format="png")["data"]
            with open(path, "wb") as file:
                file.write(base64.b64decode(picture))

    def test_stop_ends_the_request(self):
        self.browser.evaluate("document.getElementById('max_tokens').value = ''")
        self.send("Tell me a long story.")
        self.browser.wait("document.querySelector('.assistant .text')?.textContent")
        self.browser.evaluate("document.getElementById('stop').click()")
        self.browser.wait("document.querySelector('.stats')?.textContent")
        self.assertTrue(self.server.wait_idle())

    def test_shows_errors(self):
        self.browser.evaluate("document.getElementById('thinking').value = 'on'")
        self.send("Hello")
        self.assertIn("<｜System｜>", self.browser.wait("document.querySelector('.error')?.textContent"))
        self.browser.evaluate("document.getElementById('thinking').value = ''")

    def test_folds_reasoning_and_escapes_text(self):
        # The small model cannot reason, so the page's own fetch tells it what a model that can would say.
        self.browser.evaluate("""
            window.fetch = async () => new Response([
                {choices: [{delta: {reasoning_content: "Let me <b>think</b>."}}]},
                {choices: [{delta: {content: "<img src=x onerror=document.title='bad'>"}, finish_reason: "stop"}]},
                {choices: [{delta: {tool_calls: [{function: {name: "f", arguments: "{}"}}]}}]},
                {choices: [], usage: {prompt_tokens: 3, completion_tokens: 9, prompt_tokens_details: {cached_tokens: 2}}}
            ].map((event) => "data: " + JSON.stringify(event) + "\\n\\n").join("") + "data: [DONE]\\n\\n")""")
        self.send("Hello")
        self.assertIn("3 prompt tokens, 2 cached", self.browser.wait("document.querySelector('.stats')?.textContent"))
        self.assertFalse(self.browser.evaluate("document.querySelector('details').open"))
        self.assertEqual(self.browser.evaluate("document.querySelector('details .text').textContent"),
                         "Let me <b>think</b>.")
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('main img, main b').length"), 0)
        self.assertIn("f({})", self.browser.evaluate("document.querySelector('main').textContent"))


if __name__ == "__main__":
    if not CHROMIUM:
        print("skipped: Chromium is not installed")
        sys.exit(SKIPPED)
    unittest.main()
