"""What clients of the API do, as data: every client of api_test.py runs this list.

A scenario is (name, route, body, check). The check gets a Reply: its status, its JSON (for streams: its events), its error.
"""

CHAT, COMPLETIONS, RESPONSES = "chat", "completions", "responses"
USER = [{"role": "user", "content": "Tell me a story."}]
OFF = {"chat_template_kwargs": {"thinking": False}}


def text_of(reply):
    return reply.json["choices"][0]["message"]["content"]


def joined(reply, index=0):
    """The text of one choice of a stream."""
    parts = []
    for event in reply.events:
        for choice in event["choices"]:
            if choice["index"] == index:
                parts.append(choice.get("text") or (choice.get("delta") or {}).get("content") or "")
    return "".join(parts)


def reasons(reply, index=0):
    return [choice["finish_reason"] for event in reply.events for choice in event["choices"]
            if choice["index"] == index and choice["finish_reason"]]


def check_chat(t, reply):
    message = reply.json["choices"][0]["message"]
    t.assertEqual(message["role"], "assistant")
    t.assertIsInstance(message["content"], str)
    t.assertIn(reply.json["choices"][0]["finish_reason"], ["stop", "length"])
    usage = reply.json["usage"]
    t.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
    t.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], 0)
    t.assertTrue(reply.json["system_fingerprint"])


def check_chat_stream(t, reply):
    t.assertEqual(len(reasons(reply)), 1)
    last = reply.events[-1]
    t.assertEqual(last["choices"], [])
    t.assertGreater(last["usage"]["completion_tokens"], 0)
    t.assertTrue(all(event.get("usage") is None for event in reply.events[:-1]))
    t.assertTrue(joined(reply))


def check_n(t, reply):
    choices = reply.json["choices"]
    t.assertEqual([choice["index"] for choice in choices], [0, 1, 2])
    t.assertGreater(len({choice["text"] for choice in choices}), 1)
    t.assertEqual(reply.json["usage"]["completion_tokens"], 72)


def check_logprobs(t, reply):
    tokens = reply.json["choices"][0]["logprobs"]["content"]
    t.assertEqual(len(tokens), 5)
    for token in tokens:
        t.assertEqual(len(token["top_logprobs"]), 3)
        t.assertEqual(token["logprob"], token["top_logprobs"][0]["logprob"])  # greedy
        t.assertEqual(bytes(token["bytes"]).decode("utf-8", "replace"), token["token"])


def check_completion_logprobs(t, reply):
    logprobs = reply.json["choices"][0]["logprobs"]
    t.assertEqual({len(logprobs[name]) for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"]}, {4})


def check_responses(t, reply):
    t.assertEqual(reply.json["object"], "response")
    message = [item for item in reply.json["output"] if item["type"] == "message"][0]
    t.assertEqual(message["content"][0]["type"], "output_text")
    t.assertGreater(reply.json["usage"]["output_tokens"], 0)


def check_response_events(t, reply):
    types = [event["type"] for event in reply.events]
    t.assertEqual(types[0], "response.created")
    t.assertIn(types[-1], ["response.completed", "response.incomplete"])
    text = "".join(event["delta"] for event in reply.events if event["type"] == "response.output_text.delta")
    done = [event for event in reply.events if event["type"] == "response.output_text.done"]
    t.assertEqual(text, done[0]["text"])


def refused(param, status=400, code=None):
    def check(t, reply):
        t.assertEqual(reply.status, status)
        t.assertEqual(reply.error["param"], param)
        t.assertEqual(reply.error["code"], code)
        t.assertTrue(reply.error["message"])
    return check


SCENARIOS = [
    ("chat", CHAT, {"messages": USER, "max_tokens": 20, "temperature": 0}, check_chat),
    ("chat, old turns", CHAT, {"messages": USER + [{"role": "assistant", "content": "No."}] + USER, "max_tokens": 5},
     check_chat),
    ("chat, streamed", CHAT, {"messages": USER, "max_tokens": 20, "seed": 1, "stream": True,
                              "stream_options": {"include_usage": True}, **OFF}, check_chat_stream),
    ("chat, parts", CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
                           "max_completion_tokens": 3}, check_chat),
    ("chat, logprobs", CHAT, {"messages": USER, "max_tokens": 5, "temperature": 0, "logprobs": True,
                              "top_logprobs": 3, "ignore_eos": True}, check_logprobs),
    ("chat, stop", CHAT, {"messages": USER, "max_tokens": 60, "temperature": 0, "stop": ["e"]},
     lambda t, reply: t.assertNotIn("e", text_of(reply))),
    ("chat, all settings", CHAT,
     {"messages": USER, "max_tokens": 4, "temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.01,
      "frequency_penalty": 0.1, "presence_penalty": 0.1, "repetition_penalty": 1.1, "seed": 5, "logit_bias": {"5": -100},
      "min_tokens": 1, "stop_token_ids": [7], "user": "me", "parallel_tool_calls": True, "cache_salt": "mine"},
     check_chat),
    ("completion", COMPLETIONS, {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0},
     lambda t, reply: t.assertTrue(reply.json["choices"][0]["text"])),
    ("completion, echo", COMPLETIONS, {"prompt": "Once upon", "max_tokens": 2, "echo": True},
     lambda t, reply: t.assertTrue(reply.json["choices"][0]["text"].startswith("Once upon"))),
    ("completion, suffix", COMPLETIONS, {"prompt": "Once", "suffix": "a time.", "max_tokens": 3},
     lambda t, reply: t.assertEqual(reply.status, 200)),
    ("completion, ids", COMPLETIONS, {"prompt": [[5, 6], [7]], "max_tokens": 2},
     lambda t, reply: t.assertEqual(len(reply.json["choices"]), 2)),
    ("completion, n", COMPLETIONS, {"prompt": "Once", "n": 3, "seed": 77, "temperature": 1.2, "max_tokens": 24,
                                    "ignore_eos": True}, check_n),
    ("completion, logprobs", COMPLETIONS, {"prompt": "Once", "max_tokens": 4, "logprobs": 2, "ignore_eos": True},
     check_completion_logprobs),
    ("completion, streamed", COMPLETIONS, {"prompt": "Once", "max_tokens": 9, "stream": True},
     lambda t, reply: t.assertEqual(len(reasons(reply)), 1)),
    ("responses", RESPONSES, {"input": "Tell me a story.", "max_output_tokens": 12}, check_responses),
    ("responses, streamed", RESPONSES, {"input": USER, "max_output_tokens": 12, "stream": True},
     check_response_events),
    # What is refused, and how.
    ("unknown model", CHAT, {"model": "gpt-9", "messages": USER}, refused("model", 404, "model_not_found")),
    ("no messages", CHAT, {"messages": []}, refused("messages")),
    ("bad temperature", CHAT, {"messages": USER, "temperature": -1}, refused("temperature")),
    ("bad n", CHAT, {"messages": USER, "n": 0}, refused("n")),
    ("unknown field", CHAT, {"messages": USER, "no_such_field": 1}, refused("no_such_field")),
    ("json schema", CHAT, {"messages": USER, "response_format": {"type": "json_object"}}, refused("response_format")),
    ("image", CHAT, {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}]}]}, refused("messages[0].content[0].type")),
    ("effort", CHAT, {"messages": USER, "reasoning_effort": "ultra"}, refused("reasoning_effort")),
    ("reasoning without its marks", CHAT, {"messages": USER, "chat_template_kwargs": {"thinking": True}},
     refused("messages")),
    ("required tool", CHAT, {"messages": USER, "tool_choice": "required",
                             "tools": [{"type": "function", "function": {"name": "f"}}]}, refused("tool_choice")),
    ("too long", COMPLETIONS, {"prompt": [5] * 400, "max_tokens": 200},
     refused("max_tokens", code="context_length_exceeded")),
    ("id outside", COMPLETIONS, {"prompt": [[1, 999999]]}, refused("prompt")),
    ("usage without a stream", COMPLETIONS, {"prompt": "a", "stream_options": {"include_usage": True}},
     refused("stream_options")),
]
