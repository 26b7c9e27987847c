"""The server as a program: hostile clients, endings, keys, what is left behind."""

import json
import random
import signal
import socket
import threading
import time
import unittest

from program import MODEL, ProgramTest, run
from server import Server, parse_events, serving

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "seed": 1}


class Serving(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "1024", "--max-batch", "8")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def assert_alive(self):
        """Health, a plain completion, nothing left running, all pages free or cached."""
        self.assertEqual(self.server.request("GET", "/health")[0], 200)
        status, _ = self.server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 4})
        self.assertEqual(status, 200)
        self.assertTrue(self.server.wait_idle())
        self.assertTrue(self.server.wait_no_page_held())

    def open_stream(self, body):
        """A connection whose stream has begun."""
        connection = self.server.connect()
        connection.request("POST", COMPLETIONS, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        self.assertTrue(response.readline())
        return connection, response

    # B04.
    def test_streams_equal_the_whole_text_in_parallel(self):
        body = {"prompt": "The cat", "max_tokens": 40, "temperature": 0, "stop": ["\n\n\n"]}
        _, whole = self.server.post(COMPLETIONS, body)
        results = [None] * 16

        def stream(index):
            options = {**body, "stream": True, "stream_options": {"include_usage": True}}
            results[index] = parse_events(self.server.request("POST", COMPLETIONS, options)[2])

        threads = [threading.Thread(target=stream, args=(i,)) for i in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for events in results:
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(events[-2]["choices"], [])
            self.assertEqual(events[-2]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
            text = "".join(event["choices"][0]["text"] for event in events[:-2])
            self.assertEqual(text, whole["choices"][0]["text"])

    # B01.
    def test_stop_strings_never_show(self):
        body = {"prompt": "The cat", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
        text = self.server.post(COMPLETIONS, body)[1]["choices"][0]["text"]
        self.assertGreater(len(text), 30)
        for i in range(0, len(text) - 7, 23):
            stop = text[i:i + 7]
            expected = text[:text.index(stop)]
            answer = self.server.post(COMPLETIONS, {**body, "stop": [stop]})[1]["choices"][0]
            self.assertEqual((answer["text"], answer["finish_reason"]), (expected, "stop"))
            events = parse_events(self.server.request("POST", COMPLETIONS, {**body, "stop": [stop], "stream": True})[2])
            self.assertEqual("".join(event["choices"][0]["text"] for event in events[:-1]), expected)
        never = {**body, "stop": [text[-3:] + "~"]}
        self.assertEqual(self.server.post(COMPLETIONS, never)[1]["choices"][0]["text"], text)

    # F04; two hundred rounds of it in soak_test.
    def test_clients_that_leave_free_everything(self):
        # Once in the middle of a stream, while waiting, during a long prompt, without a stream.
        for index in range(12):
            kind = index % 4
            if kind == 0:
                connection, _ = self.open_stream(LONG)
                connection.close()
            elif kind == 1:
                streams = [self.open_stream({**LONG, "n": 4})[0] for _ in range(4)]  # more than run at once
                for connection in streams:
                    connection.close()
            else:
                connection = self.server.connect()
                prompt = [5 + i % 50 for i in range(900)] if kind == 2 else "x"
                connection.request("POST", COMPLETIONS, json.dumps({"prompt": prompt, "max_tokens": 100}),
                                   {"Content-Type": "application/json"})
                connection.close()
            self.assertTrue(self.server.wait_idle(), kind)
        self.assert_alive()

    def test_resets_and_garbage_harm_nobody(self):
        rng = random.Random(6)
        stream, response = self.open_stream(LONG)
        for _ in range(60):
            with socket.create_connection(("127.0.0.1", self.server.port)) as client:
                client.sendall(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 400))))
                if rng.random() < 0.5:
                    client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{\"prompt\":")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        stream.close()
        self.assert_alive()

    # I07.
    def test_huge_requests_are_refused_fast(self):
        start = time.monotonic()
        for body, param in [({"prompt": "a", "n": 100000}, "n"), ({"prompt": ["a"] * 100000}, "prompt"),
                            ({"prompt": "a", "stop": ["x"] * 100000}, "stop"),
                            ({"prompt": "a", "logit_bias": {str(i): 1 for i in range(300000)}}, "logit_bias"),
                            ({"prompt": "a", "logprobs": 100000}, "logprobs")]:
            status, answer = self.server.post(COMPLETIONS, body)
            self.assertEqual((status, answer["error"]["param"]), (400, param))
        self.assertEqual(self.server.request("POST", COMPLETIONS, b"[" * 200000)[0], 400)
        self.assertEqual(self.server.request("POST", COMPLETIONS, b" " * (40 << 20))[0], 413)
        self.assertLess(time.monotonic() - start, 20)
        self.assert_alive()

    # I08.
    def test_odd_texts_are_valid_everywhere(self):
        for text, status in [(r'"\ud83d"', 400), (r'"\udc00x"', 400), (r'"ok \ud83d\ude00"', 200), (r'"a\u0000b"', 200)]:
            for member in [f'"prompt":{text}', f'"prompt":"a","stop":{text}', f'"prompt":"a","cache_salt":{text}']:
                body = f'{{{member},"max_tokens":2,"echo":true}}'.encode()
                got, _, content = self.server.request("POST", COMPLETIONS, body)
                self.assertEqual(got, status, member)
                content.decode()
        self.assertEqual(self.server.request("POST", COMPLETIONS, b'{"prompt":"\xc3\x28"}')[0], 400)
        self.assert_alive()

    # I03.
    def test_no_template_comes_from_a_request(self):
        for path in [CHAT, "/tokenize"]:
            for member in [{"chat_template": "{% for i in range(4000) %}{% endfor %}"},
                           {"chat_template_kwargs": {"chat_template": "x"}}, {"chat_template_kwargs": {"tokenize": False}}]:
                status, answer = self.server.post(path, {"messages": [{"role": "user", "content": "a"}], **member})
                self.assertEqual(status, 400)
                self.assertIn(next(iter(member)), answer["error"]["param"])

    def test_tokens_are_those_of_the_program(self):
        text = "Once upon a time, ünïcode."
        status, answer = self.server.post("/tokenize", {"prompt": text})
        self.assertEqual(status, 200)
        told = run("tokenize", "--model", MODEL, "--text", text)
        if told.code == 0:
            self.assertEqual(answer["tokens"], json.loads(told.out))
        self.assertEqual(self.server.post("/detokenize", {"tokens": answer["tokens"]})[1]["text"], text)

    def test_metrics_count_requests(self):
        before = self.server.metric("deepinfer_generation_tokens_total")
        self.server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 7, "ignore_eos": True})
        self.assertEqual(self.server.metric("deepinfer_generation_tokens_total"), before + 7)


class SmallPool(ProgramTest):
    # F02: six requests of 60 tokens in a pool that holds half of them.
    def test_preempted_requests_answer_as_if_alone(self):
        bodies = [{"prompt": [10 + 7 * i + j for j in range(40)], "max_tokens": 60, "temperature": 0, "ignore_eos": True}
                  for i in range(6)]
        texts = [None] * len(bodies)
        with serving("--kv-tokens", "384", "--max-model-len", "192", "--max-batch", "6") as server:
            alone = [server.post(COMPLETIONS, body)[1]["choices"][0]["text"] for body in bodies]

            def ask(index):
                status, answer = server.post(COMPLETIONS, {**bodies[index], "cache_salt": "together"})
                texts[index] = (status, answer["choices"][0]["text"], answer["usage"]["completion_tokens"])

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertGreater(server.metric("deepinfer_num_preemptions_total"), 0)
        self.assertEqual(texts, [(200, text, 60) for text in alone])

    # I04: nothing is fetched for a request.
    def test_addresses_in_requests_are_never_dialled(self):
        with socket.create_server(("127.0.0.1", 0)) as canary, serving() as server:
            port = canary.getsockname()[1]
            canary.settimeout(0.2)
            for url in [f"http://127.0.0.1:{port}/a.png", f"http://localhost:{port}/", f"http://0x7f000001:{port}/",
                        "file:///etc/hostname", "http://169.254.10.10/", "data:image/png;base64,AAAA"]:
                for kind, part in [("image_url", {"image_url": {"url": url}}), ("input_image", {"image_url": url}),
                                   ("input_audio", {"input_audio": {"url": url}}), ("file", {"file": {"file_data": url}})]:
                    content = [{"type": kind, **part}]
                    for path, body in [(CHAT, {"messages": [{"role": "user", "content": content}]}),
                                       ("/v1/responses", {"input": [{"role": "user", "content": content}]}),
                                       ("/tokenize", {"messages": [{"role": "user", "content": content}]})]:
                        self.assertEqual(server.post(path, body)[0], 400, (path, kind, url))
            with self.assertRaises(TimeoutError):
                canary.accept()


class Endings(ProgramTest):
    def test_first_signal_drains(self):
        server = Server("--max-model-len", "1024")
        connection = server.connect()
        connection.request("POST", COMPLETIONS, json.dumps({**LONG, "max_tokens": 60, "stream": True}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        connection.close()
        self.assertEqual(server.process.wait(60), 0)
        server.stop()
        self.assertEqual(server.errors(), "")

    def test_second_signal_stops_at_once(self):
        server = Server("--max-model-len", "4096")
        connection = server.connect()
        connection.request("POST", COMPLETIONS, json.dumps({**LONG, "max_tokens": 4000, "stream": True}),
                           {"Content-Type": "application/json"})
        connection.getresponse().readline()
        server.process.send_signal(signal.SIGTERM)
        self.assertIsNone(server.process.poll())
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        connection.close()
        self.assertIn(server.stop(), [-signal.SIGTERM, 0])

    def test_bad_flags_are_refused(self):
        for flags, word in [(["--port", "65536"], "--port"), (["--host", "no such host"], "host"),
                            (["--thinking", "maybe"], "thinking"), (["--metrics-prefix", "a-b"], "metrics_prefix"),
                            (["--effort", "ultra"], "ultra"), (["--api-key-file", "/no/such/file"], "/no/such/file"),
                            (["--max-choices", "0"], "--max-choices")]:
            with self.subTest(word):
                self.assert_refused(run("serve", "--model", MODEL, "--port", "0", *flags), word)
        self.assert_refused(run("serve", "--model", MODEL, "--api-key-file", self.write("keys", b"# none\n")), "keys")

    # I05.
    def test_key_is_needed_and_never_logged(self):
        keys = self.write("keys", b"# test\nsesame-1\n")
        with serving("--api-key-file", keys) as server:
            self.assertEqual(server.request("GET", "/health")[0], 200)
            for method, path in [("GET", "/"), ("GET", "/metrics"), ("POST", COMPLETIONS), ("POST", "/tokenize"),
                                 ("POST", "//v1/completions"), ("POST", "/v1/completions/")]:
                self.assertEqual(server.request(method, path, {} if method == "POST" else None)[0], 401, path)
            for header in ["Bearer", "Bearer sesame", "sesame-1", ""]:
                self.assertEqual(server.request("GET", "/v1/models", None, {"Authorization": header})[0], 401)
            self.assertEqual(server.request("GET", "/v1/models", None, {"Authorization": "Bearer sesame-1"})[0], 200)
            self.assertNotIn("sesame", server.errors())

    def test_port_in_use_is_refused(self):
        with serving() as server:
            self.assert_refused(run("serve", "--model", MODEL, "--port", server.port), str(server.port))


if __name__ == "__main__":
    unittest.main()
