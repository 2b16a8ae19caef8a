#!/usr/bin/env python3
"""test_openai_client: the official `openai` client, unchanged, against the server; and the bytes of
its streams. Usage: test_openai_client.py ZEROPE

The model is small and its weights are random: what it says is settled by a grammar where a test
expects words. Nearly each of its tokens is one byte.
"""
import http.client
import json
import re
import signal
import sys
import unittest

import running

running.in_clients_python()
import openai  # noqa: E402  pylint: disable=wrong-import-position
import pydantic  # noqa: E402  pylint: disable=wrong-import-position

ZEROPE = sys.argv.pop()
KEY = "correct-horse-battery"
ASKED = [{"role": "user", "content": "Say something"}]
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "the weather in a city",
    "parameters": {"type": "object", "required": ["city", "days"], "additionalProperties": False,
                   "properties": {"city": {"enum": ["Rome", "Oslo"]},
                                  "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
WILD = {"max_tokens": 24, "temperature": 5}  # no two seeds agree
FORCED = {"type": "function", "function": {"name": "weather"}}


class Capital(pydantic.BaseModel):
    city: str = pydantic.Field(pattern="^[A-Z][a-z]{2,6}$")
    large: bool


def says(text):
    """The model must say this, and end there."""
    return {"grammar": f"root ::= {json.dumps(text)}"}


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = running.Server(ZEROPE, running.SMALL, "-c", 2048, "--alias", "small")
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="unused",
                                   max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0
        cls.server.__exit__()

    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": "small", "messages": ASKED, **more})

    def text(self, **more):
        return self.client.completions.create(**{"model": "small", "prompt": "Once", **more})


class Chat(OpenAI):
    def test_plain(self):
        answer = self.chat(extra_body=says("Hello, world"))
        self.assertEqual(answer.object, "chat.completion")
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.model, "small")
        choice = answer.choices[0]
        self.assertEqual((choice.index, choice.finish_reason), (0, "stop"))
        self.assertEqual((choice.message.role, choice.message.content),
                         ("assistant", "Hello, world"))
        self.assertIsNone(choice.message.tool_calls)
        usage = answer.usage
        self.assertGreater(usage.prompt_tokens, 0)
        self.assertGreaterEqual(usage.completion_tokens, 5)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertIsNotNone(usage.prompt_tokens_details.cached_tokens)

    def test_raw_response_shows_the_evidence(self):
        raw = self.client.chat.completions.with_raw_response.create(
            model="small", messages=ASKED, max_tokens=1)
        self.assertEqual(raw.headers["x-variant"], "baseline")
        self.assertEqual(raw.headers["x-layer-zeroed"], "0/4")
        self.assertTrue(raw.headers["x-request-id"])
        self.assertEqual(raw.parse().usage.model_extra["layer_zeroed"], 0)

    def test_streaming_adds_up_to_the_plain_answer(self):
        whole = self.chat(seed=7, **WILD)
        chunks = list(self.chat(seed=7, **WILD, stream=True,
                                stream_options={"include_usage": True}))
        self.assertEqual({c.id for c in chunks}, {chunks[0].id})
        self.assertEqual({c.created for c in chunks}, {chunks[0].created})
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
                         whole.choices[0].message.content)
        self.assertEqual(chunks[-2].choices[0].finish_reason, whole.choices[0].finish_reason)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_the_client_s_own_accumulation_of_a_stream(self):
        with self.client.chat.completions.stream(model="small", messages=ASKED,
                                                 extra_body=says("a b c")) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertIn("content.delta", kinds)
        self.assertIn("content.done", kinds)
        self.assertEqual(final.choices[0].message.content, "a b c")

    def test_stop(self):
        answer = self.chat(extra_body=says("one two three"), stop=[" two", "nothing"])
        self.assertEqual(answer.choices[0].message.content, "one")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        cut = self.chat(extra_body=says("one two three"), max_tokens=2)
        self.assertEqual(cut.choices[0].finish_reason, "length")
        self.assertEqual(cut.usage.completion_tokens, 2)

    def test_several_choices(self):
        answer = self.chat(n=3, seed=1, **WILD)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        single = [self.chat(seed=1 + i, **WILD).choices[0].message.content for i in range(3)]
        self.assertEqual([c.message.content for c in answer.choices], single)
        self.assertEqual(len(set(single)), 3)
        parts = ["", "", ""]
        for chunk in self.chat(n=3, seed=1, **WILD, stream=True):
            for choice in chunk.choices:
                parts[choice.index] += choice.delta.content or ""
        self.assertEqual(parts, single)

    def test_seed(self):
        first = self.chat(seed=11, **WILD).choices[0].message.content
        self.assertEqual(self.chat(seed=11, **WILD).choices[0].message.content, first)
        self.assertNotEqual(self.chat(seed=12, **WILD).choices[0].message.content, first)

    def test_logprobs(self):
        answer = self.chat(temperature=0, max_tokens=6, logprobs=True, top_logprobs=4)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual(len(tokens), answer.usage.completion_tokens)
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 4)
            values = [t.logprob for t in token.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(token.logprob, values[0])  # the likeliest was drawn
            self.assertLessEqual(token.logprob, 0)
        streamed = []
        for chunk in self.chat(temperature=0, max_tokens=6, logprobs=True, top_logprobs=4,
                               stream=True):
            if chunk.choices and chunk.choices[0].logprobs:
                streamed += chunk.choices[0].logprobs.content
        self.assertEqual(streamed, tokens)

    def test_json_schema(self):
        answer = self.client.chat.completions.parse(model="small", messages=ASKED, seed=3,
                                                    response_format=Capital)
        self.assertIsInstance(answer.choices[0].message.parsed, Capital)
        self.assertRegex(answer.choices[0].message.parsed.city, "^[A-Z][a-z]{2,6}$")
        given = self.chat(seed=4, response_format={"type": "json_schema", "json_schema": {
            "name": "pick", "strict": True, "schema": {"enum": ["yes", "no", 7]}}})
        self.assertIn(json.loads(given.choices[0].message.content), ("yes", "no", 7))

    def test_tools(self):
        answer = self.chat(tools=[WEATHER], tool_choice=FORCED, seed=5)
        choice = answer.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertIsNone(choice.message.content)
        call, = choice.message.tool_calls
        self.assertEqual((call.type, call.function.name), ("function", "weather"))
        arguments = json.loads(call.function.arguments)
        self.assertIn(arguments["city"], ("Rome", "Oslo"))
        self.assertIn(arguments["days"], range(1, 10))
        after = self.chat(tools=[WEATHER], tool_choice="none", max_tokens=4, messages=[
            *ASKED, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "dry"}])
        self.assertIsNone(after.choices[0].message.tool_calls)

    def test_streamed_tools(self):
        whole = self.chat(tools=[WEATHER], tool_choice="required", seed=5)
        pieces, name, ids, last = [], None, set(), None
        for chunk in self.chat(tools=[WEATHER], tool_choice="required", seed=5, stream=True):
            last = chunk.choices[0].finish_reason or last
            for call in chunk.choices[0].delta.tool_calls or []:
                self.assertEqual(call.index, 0)
                name = call.function.name or name
                ids |= {call.id} - {None}
                pieces.append(call.function.arguments)
        self.assertEqual((name, last, len(ids)), ("weather", "tool_calls", 1))
        self.assertGreater(len(pieces), 3)  # they are sent on while they are written
        self.assertEqual("".join(pieces),
                         whole.choices[0].message.tool_calls[0].function.arguments)

    def test_several_clients_at_a_time(self):
        streams = [self.chat(seed=i, **WILD, stream=True) for i in range(6)]
        texts = ["" for _ in streams]
        for i, stream in enumerate(streams):
            for chunk in stream:
                texts[i] += chunk.choices[0].delta.content or ""
        for i, text in enumerate(texts):
            alone = self.chat(seed=i, **WILD).choices[0].message.content
            self.assertEqual(text, alone)

    def test_client_that_leaves_a_stream(self):
        before = self.server.counted("zerope_requests_total", outcome="cancelled")
        stream = self.chat(stream=True, max_tokens=1900, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.server.wait_until(lambda: self.server.counted(
            "zerope_requests_total", outcome="cancelled") == before + 1, "cancelled request")


class Others(OpenAI):
    def test_completions(self):
        answer = self.text(seed=2, max_tokens=12)
        self.assertEqual(answer.object, "text_completion")
        self.assertTrue(answer.id.startswith("cmpl-"))
        streamed = list(self.text(seed=2, max_tokens=12, stream=True))
        self.assertEqual("".join(c.choices[0].text for c in streamed), answer.choices[0].text)
        stopped = self.text(extra_body=says("ab. cd"), stop=".")
        self.assertEqual((stopped.choices[0].text, stopped.choices[0].finish_reason),
                         ("ab", "stop"))
        both = self.text(prompt=["One", "Two"], n=2, seed=2, max_tokens=3)
        self.assertEqual([c.index for c in both.choices], [0, 1, 2, 3])

    def test_logprobs_of_completions(self):
        answer = self.text(prompt="Once", temperature=0, max_tokens=3, logprobs=2, echo=True)
        found = answer.choices[0].logprobs
        self.assertEqual(len(found.tokens), answer.usage.total_tokens)
        self.assertIsNone(found.token_logprobs[0])
        self.assertTrue(all(p <= 0 for p in found.token_logprobs[1:]))
        self.assertEqual(len(found.text_offset), len(found.tokens))
        self.assertTrue(answer.choices[0].text.startswith("Once"))

    def test_models(self):
        listed = list(self.client.models.list())
        self.assertEqual([m.id for m in listed], ["small"])
        one = self.client.models.retrieve("small")
        self.assertEqual((one.id, one.object, one.owned_by), ("small", "model", "zerope"))


class Errors(OpenAI):
    def test_context_length(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": "word " * 1000}])
        error = caught.exception
        self.assertEqual((error.status_code, error.code), (400, "context_length_exceeded"))
        self.assertEqual(error.type, "invalid_request_error")
        numbers = re.search(r"request \((\d+) tokens\) exceeds the available context size "
                            r"\((\d+) tokens\)", error.message)
        self.assertEqual((int(numbers[1]), int(numbers[2])),
                         (error.body["n_prompt_tokens"], error.body["n_ctx"]))
        self.assertEqual(error.body["n_ctx"], 2048)
        self.assertGreater(error.body["n_prompt_tokens"], 2048)

    def test_wrong_values(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        self.assertIn("temperature", caught.exception.message)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[])
        self.assertEqual(caught.exception.type, "invalid_request_error")

    def test_unknown_model_and_path(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model="another")
        self.assertEqual(caught.exception.status_code, 404)
        self.assertIn("another", caught.exception.message)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("another")
        with self.assertRaises(openai.NotFoundError):
            self.client.moderations.create(input="x")

    def test_deadline(self):
        with self.assertRaises(openai.InternalServerError) as caught:
            self.chat(max_tokens=2000, n=16, extra_body={"timeout": 0.001, "ignore_eos": True})
        self.assertEqual((caught.exception.status_code, caught.exception.code),
                         (504, "deadline_exceeded"))


class Keys(unittest.TestCase):
    def test_keys_and_limits(self):
        with running.Server(ZEROPE, running.SMALL, "--alias", "small", "-c", 512,
                            keys=f"ann {KEY} requests=2\n") as server:
            def client(key):
                return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)

            def ask(key):
                return client(key).chat.completions.create(model="small", messages=ASKED,
                                                           max_tokens=1)
            with self.assertRaises(openai.AuthenticationError) as caught:
                ask("wrong-horse-battery")
            self.assertEqual((caught.exception.status_code, caught.exception.type),
                             (401, "authentication_error"))
            self.assertNotIn("wrong-horse", server.log_path.read_text(encoding="utf-8"))
            for left in ("1", "0"):
                raw = client(KEY).chat.completions.with_raw_response.create(
                    model="small", messages=ASKED, max_tokens=1)
                self.assertEqual(raw.headers["x-ratelimit-limit-requests"], "2")
                self.assertEqual(raw.headers["x-ratelimit-remaining-requests"], left)
            with self.assertRaises(openai.RateLimitError) as caught:
                ask(KEY)
            self.assertEqual((caught.exception.status_code, caught.exception.type),
                             (429, "rate_limit_error"))
            self.assertGreaterEqual(int(caught.exception.response.headers["retry-after"]), 1)


# ---- bytes -----------------------------------------------------------------------------------

def frame(fields):
    return "data: " + json.dumps(fields, separators=(",", ":"), ensure_ascii=False) + "\n\n"


class Wire(OpenAI):
    """Whole bodies of streams, byte for byte, but for what differs from request to request."""

    def stream(self, path, **body):
        answer = self.server.ask("POST", path, {"model": "small", "stream": True, **body})
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "text/event-stream; charset=utf-8")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.assertEqual(answer.headers["x-accel-buffering"], "no")
        return answer.body.decode()

    def expect(self, text, kind, prefix, choices, usage=None, calls=()):
        """choices: of each chunk. None in place of choices: the chunk that has the usage."""
        first = json.loads(text.partition("\n\n")[0][len("data: "):])
        self.assertRegex(first["id"], f"^{prefix}[0-9a-f]{{24}}$")
        self.assertRegex(first["system_fingerprint"], "^zp-[0-9a-f]{12}$")
        self.assertIsInstance(first["created"], int)
        chunks = []
        for choice in choices:
            chunk = {"id": first["id"], "object": kind, "created": first["created"],
                     "model": "small", "system_fingerprint": first["system_fingerprint"],
                     "choices": [] if choice is None else [choice]}
            if usage is not None:
                chunk["usage"] = usage if choice is None else None
            chunks.append(frame(chunk))
        for place, call in enumerate(calls):
            self.assertRegex(call, "^call_[0-9a-f]{24}$", place)
        self.assertEqual(text, "".join(chunks) + "data: [DONE]\n\n")

    @staticmethod
    def delta(delta, reason=None):
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}

    def test_chat(self):
        text = self.stream("/v1/chat/completions", messages=ASKED, **says("Hé!"))
        self.expect(text, "chat.completion.chunk", "chatcmpl-", [
            self.delta({"role": "assistant", "content": ""}), self.delta({"content": "H"}),
            self.delta({"content": "é"}), self.delta({"content": "!"}), self.delta({}, "stop")])

    def test_chat_with_usage_and_a_stop_string_held_back(self):
        text = self.stream("/v1/chat/completions", messages=ASKED, stop="bcd", **says("abcxbcde"),
                           stream_options={"include_usage": True})
        prompt = len(self.server.post("/tokenize", {"content": "<user>Say something<a>"})["tokens"])
        self.expect(text, "chat.completion.chunk", "chatcmpl-", [
            self.delta({"role": "assistant", "content": ""}), self.delta({"content": "a"}),
            self.delta({"content": "bcx"}), self.delta({}, "stop"), None],
            usage={"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7,
                   "prompt_tokens_details": {"cached_tokens": 0}, "layer_zeroed": 0})

    def test_chat_that_reasons(self):
        text = self.stream("/v1/chat/completions", messages=ASKED, **says("<think>m</think>k"))
        self.expect(text, "chat.completion.chunk", "chatcmpl-", [
            self.delta({"role": "assistant", "content": ""}),
            self.delta({"reasoning_content": "m"}), self.delta({"content": "k"}),
            self.delta({}, "stop")])

    def test_tool_call(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "required": ["a"], "properties": {"a": {"const": 1}}}}}
        text = self.stream("/v1/chat/completions", messages=ASKED, tools=[tool],
                           tool_choice="required", seed=1)
        call = re.search(r'"id":"(call_[^"]*)"', text)[1]
        rest = re.findall(r'"tool_calls":\[\{"index":0,"function":\{"arguments":"(.*?)"\}\}\]', text)
        arguments = json.loads('"' + "".join(rest) + '"')
        self.assertEqual(json.loads(arguments), {"a": 1})
        self.expect(text, "chat.completion.chunk", "chatcmpl-", [
            self.delta({"role": "assistant", "content": ""}),
            self.delta({"tool_calls": [{"index": 0, "id": call, "type": "function",
                                        "function": {"name": "f", "arguments": ""}}]}),
            *[self.delta({"tool_calls": [{"index": 0, "function": {
                "arguments": json.loads(f'"{piece}"')}}]}) for piece in rest],
            self.delta({}, "tool_calls")], calls=[call])

    def test_completions(self):
        text = self.stream("/v1/completions", prompt="Once", **says("ab"))
        self.expect(text, "text_completion", "cmpl-", [
            {"index": 0, "text": piece, "logprobs": None, "finish_reason": reason}
            for piece, reason in (("a", None), ("b", None), ("", "stop"))])

    def test_error_in_a_stream(self):
        with running.Server(ZEROPE, running.SMALL, "-c", 65536) as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            connection.request("POST", "/v1/chat/completions", json.dumps({
                "messages": ASKED, "stream": True, "ignore_eos": True}))
            answer = connection.getresponse()
            answer.readline()
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("draining")
            server.process.send_signal(signal.SIGTERM)  # cuts what is under way
            text = answer.read().decode()
            self.assertEqual(server.process.wait(running.PATIENCE), 0)
            connection.close()
        last = text.split("\n\n")[-2]
        self.assertTrue(last.startswith('data: {"error":{"message":'), last)
        self.assertEqual(json.loads(last[6:])["error"]["type"], "server_error")
        self.assertNotIn("[DONE]", text)


if __name__ == "__main__":
    unittest.main()
