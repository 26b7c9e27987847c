"""Runs `deepinfer serve` for the end-to-end tests and talks to it."""

import http.client
import json
import re
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager

from program import BINARY, MODEL

START_S = 120


class Server:
    """A server on a port of its own. Its log is kept for the failure's report."""

    def __init__(self, *flags, model=MODEL):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [BINARY, "serve", "--model", str(model), "--port", "0", *map(str, flags)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log)
        watchdog = threading.Timer(START_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline().decode()
        watchdog.cancel()
        found = re.search(r"http://[\d.]+:(\d+)$", line.strip())
        if not found:
            raise AssertionError(f"the server did not start: {line!r} {self.errors()}")
        self.port = int(found.group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def errors(self):
        """What it wrote to stderr so far."""
        if not self.log.closed:
            self.log.seek(0)
            self.text = self.log.read().decode()
        return self.text

    def connect(self, timeout=600):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, bytes) of one request on a connection of its own."""
        connection = self.connect()
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            given = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, {**given, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)[2].decode()

    def post(self, path, body):
        """(status, JSON)"""
        status, _, content = self.request("POST", path, body)
        return status, json.loads(content)

    def metrics(self):
        """{name with labels: value}"""
        values = {}
        for line in self.get("/metrics").splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def metric(self, name):
        """The sum of a metric over its labels."""
        return sum(value for key, value in self.metrics().items() if key.split("{")[0] == name)

    def wait_idle(self, seconds=10):
        """Waits until no request runs or waits; whether that happened."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric("deepinfer_num_requests_running") + self.metric("deepinfer_num_requests_waiting") == 0:
                return True
            time.sleep(0.02)
        return False

    def wait_no_page_held(self, seconds=10):
        """Waits until no page is held: a cancelled request's are, until the step under way has landed."""
        end = time.monotonic() + seconds
        while self.metrics()['deepinfer_kv_pages{state="held"}'] > 0:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def wait_alone(self, seconds=10):
        """Waits until no connection is open but the one that asks; whether that happened."""
        end = time.monotonic() + seconds
        while self.metric("deepinfer_http_connections") > 1:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def stop(self):
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self.process.stdout.close()
            self.errors()
            self.log.close()


@contextmanager
def serving(*flags, model=MODEL):
    server = Server(*flags, model=model)
    try:
        yield server
    finally:
        server.stop()


def parse_events(content):
    """The data of server-sent events as JSON; "[DONE]" as text."""
    events = []
    for event in content.decode().split("\n\n"):
        for line in event.split("\n"):
            if line.startswith("data: "):
                data = line[len("data: "):]
                events.append(data if data == "[DONE]" else json.loads(data))
    return events
