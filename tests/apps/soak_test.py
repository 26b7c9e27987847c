"""Random traffic for a while: streams, aborts, disconnects, bad input, long prompts. Then nothing is left and memory is
flat. DEEPINFER_SOAK_SECONDS (default 120) says for how long; half an hour is for runs by hand.
"""

import json
import os
import random
import socket
import threading
import time
import unittest

from server import parse_events, serving

SECONDS = float(os.environ.get("DEEPINFER_SOAK_SECONDS", "120"))
CLIENTS = 12
SEED = int(os.environ.get("DEEPINFER_SOAK_SEED", "1"))
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


class Client:
    """One user after another, each with a kind of its own."""

    def __init__(self, server, seed):
        self.server = server
        self.rng = random.Random(seed)
        self.problems = []
        self.count = 0

    def prompt(self, longest):
        return [self.rng.randrange(5, 400) for _ in range(self.rng.randrange(1, longest))]

    def body(self, **more):
        return {"prompt": self.prompt(60), "max_tokens": self.rng.randrange(1, 40), **more}

    def whole(self):
        status, answer = self.server.post(COMPLETIONS, self.body(n=self.rng.randrange(1, 4)))
        assert status in (200, 503), (status, answer)

    def chat(self):
        status, answer = self.server.post(CHAT, {"messages": [{"role": "user", "content": "Hello " * 5}], "max_tokens": 20})
        assert status in (200, 503), (status, answer)

    def stream(self):
        status, _, content = self.server.request("POST", COMPLETIONS, self.body(stream=True))
        if status == 200:
            events = parse_events(content)
            assert events[-1] == "[DONE]", events[-1]
            assert sum(bool(event["choices"][0]["finish_reason"]) for event in events[:-1]) == 1

    def long_prompt(self):
        status, answer = self.server.post(COMPLETIONS, {"prompt": self.prompt(800), "max_tokens": 3})
        assert status in (200, 503), (status, answer)

    def bad(self):
        body = self.rng.choice([b"", b"{", b"[" * 1000, b'{"prompt":"a","n":-1}', b'{"prompt":[[999999]]}', b"\xff\xfe",
                                b'{"prompt":"a","max_tokens":1e99}', b'{"prompt":{"a":NaN}}'])
        assert self.server.request("POST", COMPLETIONS, body)[0] == 400

    def leave(self):
        """Closes in the middle, before, or while the request is being sent."""
        data = json.dumps(self.body(stream=self.rng.random() < 0.5, ignore_eos=True)).encode()
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            sent = head + data
            connection.sendall(sent[:self.rng.randrange(1, len(sent) + 1)])
            if self.rng.random() < 0.5:
                connection.settimeout(self.rng.random() * 0.1)
                try:
                    connection.recv(100)
                except OSError:
                    pass
            if self.rng.random() < 0.3:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def garbage(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(bytes(self.rng.randrange(256) for _ in range(200)))

    def run(self, end):
        kinds = [self.whole, self.chat, self.stream, self.long_prompt, self.bad, self.leave, self.leave, self.garbage]
        while time.monotonic() < end and not self.problems:
            kind = self.rng.choice(kinds)
            self.count += 1
            try:
                kind()
            except OSError as error:
                if kind not in (self.leave, self.garbage):
                    self.problems.append(f"{kind.__name__}: {error!r}")
            except Exception as error:  # noqa: BLE001: whatever it is belongs into the report
                self.problems.append(f"{kind.__name__}: {error!r}")


class Soak(unittest.TestCase):
    def traffic(self, server, seconds, seed):
        clients = [Client(server, seed * 1000 + i) for i in range(CLIENTS)]
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=client.run, args=(end,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([problem for client in clients for problem in client.problems], [], f"seed {SEED}")
        self.assertTrue(server.wait_idle(30))
        return sum(client.count for client in clients)

    def memory(self, server):
        return server.metric("process_resident_memory_bytes")

    def test_nothing_is_left(self):
        with serving("--max-model-len", "1024", "--max-batch", "8", "--kv-tokens", "4096") as server:
            count = self.traffic(server, SECONDS / 4, SEED)  # buffers and caches grow to their sizes
            before = self.memory(server)
            count += self.traffic(server, SECONDS * 3 / 4, SEED + 1)
            after = self.memory(server)
            metrics = server.metrics()
            self.assertTrue(server.wait_no_page_held(), metrics)
            self.assertTrue(server.wait_alone(), metrics)
            print(f"{count} requests in {SECONDS:.0f} s; resident {before / 1e6:.1f} MB, then {after / 1e6:.1f} MB")
            self.assertLess(after, before * 1.05 + 4e6)
            self.assertEqual(server.errors(), "")


class Leaving(unittest.TestCase):
    ROUNDS = 200

    def leave(self, server, kind, rng):
        """One client that leaves in one of the ways there are."""
        body = {"prompt": [5 + rng.randrange(300)], "max_tokens": 400, "ignore_eos": True, "stream": kind != "whole"}
        if kind == "prefill":
            body["prompt"] = [5 + rng.randrange(300) for _ in range(5000)]
        if kind == "queued":
            body["n"] = 12  # more than run at once
        connection = server.connect()
        connection.request("POST", COMPLETIONS, json.dumps(body), {"Content-Type": "application/json"})
        if kind == "chunk":
            connection.getresponse().readline()
        elif kind == "half":
            connection.sock.shutdown(socket.SHUT_WR)
        elif kind == "whole":
            connection.sock.settimeout(0.05)
            try:
                connection.getresponse()
            except TimeoutError:
                pass
        connection.close()

    # F04: whoever leaves, in whichever way, is noticed within a second and leaves nothing behind.
    def test_disconnects_free_everything(self):
        rng = random.Random(SEED)
        kinds = ["chunk", "whole", "queued", "prefill", "half"]
        # Pages and snapshots so few that the first rounds touch them all: what they hold is no leak.
        with serving("--max-model-len", "6144", "--kv-tokens", "6144", "--snapshots", "8", "--max-batch", "8") as server:
            for index in range(self.ROUNDS):
                if index == self.ROUNDS // 4:  # the allocator's arenas have their sizes by then
                    self.assertTrue(server.wait_alone())
                    before = server.metric("process_resident_memory_bytes")
                kind = kinds[index % len(kinds)]
                self.leave(server, kind, rng)
                # A step of a long prompt that is under way is not cut short: that is the machine's speed.
                self.assertTrue(server.wait_idle(10 if kind == "prefill" else 5), (index, kind))
            self.assertTrue(server.wait_alone())
            self.assertLess(server.metric("process_resident_memory_bytes"), before * 1.05)
            self.assertTrue(server.wait_no_page_held())
            self.assertEqual(server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 4})[0], 200)
            self.assertEqual(server.errors(), "")


if __name__ == "__main__":
    unittest.main()
