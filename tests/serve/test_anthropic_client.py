#!/usr/bin/env python3
"""test_anthropic_client: the official `anthropic` client, unchanged, against the server; and the
bytes of its streams. Usage: test_anthropic_client.py ZEROPE

As in test_openai_client.py, a grammar settles what the random weights of the small model say.
"""
import json
import re
import sys
import typing
import unittest

import running

running.in_clients_python()
import anthropic  # noqa: E402  pylint: disable=wrong-import-position
import pydantic  # noqa: E402  pylint: disable=wrong-import-position

ZEROPE = sys.argv.pop()
KEY = "correct-horse-battery"
ASKED = [{"role": "user", "content": "Say something"}]
WEATHER = {"name": "weather", "description": "the weather in a city", "input_schema": {
    "type": "object", "required": ["city", "days"], "additionalProperties": False,
    "properties": {"city": {"enum": ["Rome", "Oslo"]},
                   "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}
COLD = {"temperature": 0}  # no longer an argument of this client
THINKING = {"type": "enabled", "budget_tokens": 1024}


class Capital(pydantic.BaseModel):
    city: typing.Literal["Rome", "Oslo"]
    large: bool


def says(text, **more):
    """The model must say this, and end there."""
    return {"grammar": f"root ::= {json.dumps(text)}", **more}


class Anthropic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = running.Server(ZEROPE, running.SMALL, "-c", 2048, "--alias", "small")
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="unused", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0
        cls.server.__exit__()

    def ask(self, **more):
        return self.client.messages.create(**{"model": "small", "messages": ASKED,
                                              "max_tokens": 200, **more})

    def stream(self, **more):
        return self.client.messages.stream(**{"model": "small", "messages": ASKED,
                                              "max_tokens": 200, **more})


class Messages(Anthropic):
    def test_plain(self):
        answer = self.ask(extra_body=says("Hello, world"))
        self.assertTrue(answer.id.startswith("msg_"))
        self.assertEqual((answer.type, answer.role, answer.model), ("message", "assistant", "small"))
        block, = answer.content
        self.assertEqual((block.type, block.text), ("text", "Hello, world"))
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("end_turn", None))
        self.assertGreater(answer.usage.input_tokens, 0)
        self.assertGreaterEqual(answer.usage.output_tokens, 5)
        self.assertEqual(answer.usage.cache_read_input_tokens, 0)

    def test_system_and_blocks(self):
        blocks = [{"role": "user", "content": [{"type": "text", "text": "Say something"}]}]
        plain = self.ask(extra_body=COLD, max_tokens=8, system="Be short")
        same = self.ask(extra_body=COLD, max_tokens=8, messages=blocks,
                        system=[{"type": "text", "text": "Be short"}])
        self.assertEqual(same.content, plain.content)
        self.assertEqual(same.usage.input_tokens, plain.usage.input_tokens)
        self.assertGreater(plain.usage.input_tokens, self.ask(max_tokens=1).usage.input_tokens)

    def test_streaming_adds_up_to_the_plain_answer(self):
        whole = self.ask(extra_body={"seed": 4, "temperature": 5}, max_tokens=24)
        with self.stream(extra_body={"seed": 4, "temperature": 5}, max_tokens=24) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_raw_events(self):
        kinds = [event.type for event in self.ask(stream=True, extra_body=says("ab"))]
        self.assertEqual([k for k in kinds if k != "ping"], [
            "message_start", "content_block_start", "content_block_delta", "content_block_delta",
            "content_block_stop", "message_delta", "message_stop"])

    def test_stop_reasons(self):
        answer = self.ask(stop_sequences=[" two", "no"], extra_body=says("one two three"))
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", " two"))
        self.assertEqual(answer.content[0].text, "one")
        answer = self.ask(max_tokens=2, extra_body=says("one two three"))
        self.assertEqual((answer.stop_reason, answer.usage.output_tokens), ("max_tokens", 2))

    def test_thinking(self):
        answer = self.ask(max_tokens=1100, thinking=THINKING,
                          extra_body=says("<think>hm</think>yes"))
        self.assertEqual([b.type for b in answer.content], ["thinking", "text"])
        self.assertEqual(answer.content[0].thinking, "hm")
        self.assertIsInstance(answer.content[0].signature, str)
        self.assertEqual(answer.content[1].text, "yes")
        hidden = self.ask(extra_body=says("<think>hm</think>yes"))
        self.assertEqual([b.type for b in hidden.content], ["text"])

    def test_json_schema(self):
        answer = self.client.messages.parse(model="small", messages=ASKED, max_tokens=300,
                                            output_format=Capital, extra_body={"seed": 3})
        self.assertIsInstance(answer.parsed_output, Capital)
        given = self.ask(output_config={"format": {"type": "json_schema", "schema": {
            "enum": ["yes", "no", 7]}}})
        self.assertIn(json.loads(given.content[0].text), ("yes", "no", 7))

    def test_tools(self):
        answer = self.ask(tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"})
        self.assertEqual(answer.stop_reason, "tool_use")
        call, = answer.content
        self.assertEqual((call.type, call.name), ("tool_use", "weather"))
        self.assertIn(call.input["city"], ("Rome", "Oslo"))
        self.assertIn(call.input["days"], range(1, 10))
        after = self.ask(tools=[WEATHER], tool_choice={"type": "none"}, max_tokens=4, messages=[
            *ASKED, {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                          "content": "dry"}]}])
        self.assertNotIn("tool_use", [b.type for b in after.content])

    def test_streamed_tools(self):
        seed = {"seed": 9}
        whole = self.ask(tools=[WEATHER], tool_choice={"type": "any"}, extra_body=seed)
        pieces = []
        with self.stream(tools=[WEATHER], tool_choice={"type": "any"}, extra_body=seed) as stream:
            for event in stream:
                if event.type == "input_json":
                    pieces.append(event.partial_json)
            final = stream.get_final_message()
        self.assertGreater(len(pieces), 3)  # they are sent on while they are written
        self.assertEqual(json.loads("".join(pieces)), whole.content[0].input)
        self.assertEqual(final.content[0].input, whole.content[0].input)
        self.assertEqual((final.content[0].name, final.stop_reason), ("weather", "tool_use"))

    def test_count_tokens(self):
        for more in ({}, {"system": "Be short"}, {"tools": [WEATHER]}):
            counted = self.client.messages.count_tokens(model="small", messages=ASKED, **more)
            used = self.ask(max_tokens=1, **more).usage
            self.assertEqual(counted.input_tokens,
                             used.input_tokens + used.cache_read_input_tokens)

    def test_whole_answers_tell_the_request_s_id(self):
        messages = self.client.messages
        for call, more in ((messages.with_raw_response.create, {"max_tokens": 1}),
                           (messages.with_raw_response.count_tokens, {})):
            raw = call(model="small", messages=ASKED, **more)
            self.assertEqual(raw.headers["request-id"], raw.headers["x-request-id"])

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["small"])
        self.assertEqual(self.client.models.retrieve("small").id, "small")

    def test_several_clients_at_a_time(self):
        streams = [self.ask(stream=True, extra_body={"seed": i, "temperature": 5}, max_tokens=24)
                   for i in range(6)]
        for i, stream in enumerate(streams):
            text = "".join(e.delta.text for e in stream if e.type == "content_block_delta")
            alone = self.ask(extra_body={"seed": i, "temperature": 5}, max_tokens=24)
            self.assertEqual(text, alone.content[0].text)


class Errors(Anthropic):
    def refused(self, error, status, kind, **more):
        with self.assertRaises(error) as caught:
            self.ask(**more)
        body = caught.exception.body
        self.assertEqual((caught.exception.status_code, body["type"], body["error"]["type"]),
                         (status, "error", kind))
        self.assertEqual(body["request_id"], caught.exception.response.headers["request-id"])
        return body["error"]["message"]

    def test_context_length(self):
        long = [{"role": "user", "content": "word " * 1000}]
        message = self.refused(anthropic.BadRequestError, 400, "invalid_request_error",
                               messages=long)
        numbers = re.search(r"prompt is too long: (\d+) tokens > (\d+) maximum", message)
        self.assertGreater(int(numbers[1]), int(numbers[2]))

    def test_wrong_values(self):
        self.assertIn("top_p", self.refused(
            anthropic.BadRequestError, 400, "invalid_request_error",
            extra_body={"top_p": 3}))
        self.assertIn("role", self.refused(
            anthropic.BadRequestError, 400, "invalid_request_error", messages=[{"content": "x"}]))

    def test_unknown_model(self):
        self.assertIn("another", self.refused(
            anthropic.NotFoundError, 404, "not_found_error", model="another"))
        with self.assertRaises(anthropic.NotFoundError):
            self.client.models.retrieve("another")


class Keys(unittest.TestCase):
    def test_keys_and_limits(self):
        with running.Server(ZEROPE, running.SMALL, "--alias", "small", "-c", 512,
                            keys=f"ann {KEY} requests=2\n") as server:
            def ask(key):
                client = anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)
                return client.messages.with_raw_response.create(model="small", messages=ASKED,
                                                                max_tokens=1)
            with self.assertRaises(anthropic.AuthenticationError) as caught:
                ask("wrong-horse-battery")
            self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")
            for left in ("1", "0"):
                self.assertEqual(ask(KEY).headers["anthropic-ratelimit-requests-remaining"], left)
            with self.assertRaises(anthropic.RateLimitError) as caught:
                ask(KEY)
            self.assertEqual(caught.exception.body["error"]["type"], "rate_limit_error")
            self.assertGreaterEqual(int(caught.exception.response.headers["retry-after"]), 1)


# ---- bytes -----------------------------------------------------------------------------------

def frame(kind, **fields):
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"), ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n"


def usage(prompt, n):
    return {"input_tokens": prompt, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": n, "layer_zeroed": 0}


class Wire(Anthropic):
    """Whole bodies of streams, byte for byte, but for what differs from request to request."""

    def body(self, **more):
        answer = self.server.ask("POST", "/v1/messages", {
            "model": "small", "messages": ASKED, "max_tokens": 300, "stream": True, **more})
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "text/event-stream; charset=utf-8")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        return answer.body.decode()

    def expect(self, text, frames, n, reason="end_turn", stop=None):
        start = json.loads(re.search("^data: (.*)$", text, re.M)[1])["message"]
        self.assertRegex(start["id"], "^msg_[0-9a-f]{24}$")
        prompt = start["usage"]["input_tokens"]
        self.assertGreater(prompt, 0)
        self.assertEqual(text, "".join([
            frame("message_start", message={
                "id": start["id"], "type": "message", "role": "assistant", "content": [],
                "model": "small", "stop_reason": None, "stop_sequence": None,
                "usage": usage(prompt, 0)}),
            frame("ping"), *frames,
            frame("message_delta", delta={"stop_reason": reason, "stop_sequence": stop},
                  usage=usage(prompt, n)),
            frame("message_stop")]))

    @staticmethod
    def block(index, block, deltas):
        return [frame("content_block_start", index=index, content_block=block),
                *[frame("content_block_delta", index=index, delta=d) for d in deltas],
                frame("content_block_stop", index=index)]

    def text_block(self, index, *pieces):
        return self.block(index, {"type": "text", "text": ""},
                          [{"type": "text_delta", "text": p} for p in pieces])

    def test_text(self):
        self.expect(self.body(**says("Hé!")), self.text_block(0, "H", "é", "!"), 4)

    def test_stop_sequence(self):
        self.expect(self.body(**says("abcxbcde", stop_sequences=["bcd"])),
                    self.text_block(0, "a", "bcx"), 7, "stop_sequence", "bcd")

    def test_empty_answers_have_no_block(self):
        self.expect(self.body(**says("bcd", stop_sequences=["bcd"])), [], 3, "stop_sequence", "bcd")

    def test_thinking(self):
        text = self.body(thinking=THINKING, **says("<think>mn</think>k"))
        n = json.loads(re.findall("^data: (.*)$", text, re.M)[-2])["usage"]["output_tokens"]
        thought = self.block(0, {"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": "m"}, {"type": "thinking_delta", "thinking": "n"},
            {"type": "signature_delta", "signature": ""}])
        self.expect(text, thought + self.text_block(1, "k"), n)

    def test_tool_use(self):
        tool = {"name": "f", "input_schema": {"type": "object", "required": ["a"],
                                              "properties": {"a": {"const": 1}}}}
        text = self.body(tools=[tool], tool_choice={"type": "any"}, seed=1)
        call = re.search(r'"id":"(toolu_[0-9a-f]{24})"', text)[1]
        pieces = [json.loads(f'"{p}"') for p in
                  re.findall(r'"partial_json":"((?:[^"\\]|\\.)*)"', text)]
        self.assertEqual(json.loads("".join(pieces)), {"a": 1})
        n = json.loads(re.findall("^data: (.*)$", text, re.M)[-2])["usage"]["output_tokens"]
        self.expect(text, self.block(0, {"type": "tool_use", "id": call, "name": "f", "input": {}},
                                     [{"type": "input_json_delta", "partial_json": p}
                                      for p in pieces]), n, "tool_use")


if __name__ == "__main__":
    unittest.main()
