"""Times to the first token of a server that is ready: J01. Slow machines are slow for all of them alike; a machine that
stalls gets more than one try.
"""

import json
import random
import statistics
import threading
import time
import unittest

from server import serving

COMPLETIONS = "/v1/completions"
TRIES = 4
SEED = 3


class FirstToken(unittest.TestCase):
    def first_token_s(self, server, prompt):
        """Seconds from sending a request to its first token."""
        connection = server.connect()
        begin = time.monotonic()
        connection.request("POST", COMPLETIONS, json.dumps({"prompt": prompt, "max_tokens": 1, "stream": True}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertTrue(response.readline().startswith(b"data: "))
        seconds = time.monotonic() - begin
        response.read()
        response.close()
        connection.close()
        return seconds

    def tries(self, attempt):
        """Until `attempt` returns no complaint."""
        complaints = []
        for _ in range(TRIES):
            complaint = attempt()
            if complaint is None:
                return
            complaints.append(complaint)
        self.fail("\n".join(complaints))

    def test_new_lengths_wait_for_nothing(self):
        rng = random.Random(SEED)
        # A server of its own for each try: its first requests are what is looked at.
        def attempt():
            with serving("--max-model-len", "2048") as server:
                for low, high in [(1, 30), (200, 260), (900, 1000)]:
                    times = []
                    for length in rng.sample(range(low, high), 7):
                        times.append(self.first_token_s(server, [5 + rng.randrange(400) for _ in range(length)]))
                    if max(times) > 3 * statistics.median(times) + 0.02:
                        return f"lengths from {low}: {[round(t, 4) for t in times]}"
            return None
        self.tries(attempt)

    def test_long_prompts_share_fairly(self):
        rng = random.Random(SEED + 1)

        def prompt():
            return [5 + rng.randrange(400) for _ in range(800)]

        def attempt():
            with serving("--max-model-len", "2048", "--max-batch", "8") as server:
                alone = statistics.median(self.first_token_s(server, prompt()) for _ in range(3))
                times = []
                threads = [threading.Thread(target=lambda p=prompt(): times.append(self.first_token_s(server, p)))
                           for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if len(times) == 8 and max(times) <= 3 * 8 * alone:
                    return None
                return f"alone {alone:.3f} s, together {[round(t, 3) for t in times]}"
        self.tries(attempt)


if __name__ == "__main__":
    unittest.main()
