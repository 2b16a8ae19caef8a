#!/usr/bin/env python3
"""test_traces.py: spans of `zerope serve --otlp` as collectors get them: OTLP's JSON, the callers'
traces (W3C Trace Context), and what becomes of them when a collector is slow, ill or gone.

Usage: test_traces.py ZEROPE"""
import http.server
import json
import pathlib
import sys
import threading
import time
import unittest

import running

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "obs"))
import test_lines  # noqa: E402  pylint: disable=wrong-import-position

ZEROPE = sys.argv.pop()
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PHASES = ["accept", "queue", "prefill", "decode", "stream"]
QUESTION = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True}


class Collector:
    """Keeps the spans of each POST; `answer` is its status, or what it does in place of one."""

    def __init__(self, answer=200):
        self.answer, self.batches, self.heads = answer, [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.heads.append((self.path, self.headers["content-type"]))
                outer.batches.append(json.loads(body))
                if callable(outer.answer):
                    outer.answer(self)
                else:
                    self.send_response(outer.answer)
                    self.send_header("content-length", "2")
                    self.end_headers()
                    self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads, self.server.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        return [s for b in self.batches for r in b["resourceSpans"] for c in r["scopeSpans"]
                for s in c["spans"]]


def of_server(collector):
    return [span for span in collector.spans() if span["kind"] == 2]


def counted(server, result):
    return server.counted("zerope_trace_spans_total", result=result)


def values(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def ask(server, **headers):
    answer = server.ask("POST", "/v1/chat/completions", QUESTION, headers)
    assert answer.status == 200, answer
    return answer


class Traces(unittest.TestCase):
    def test_every_span_is_valid_and_within_its_request(self):
        with Collector() as collector, running.Server(ZEROPE, running.SMALL, "--otlp",
                                                      collector.url) as server:
            for _ in range(5):
                ask(server)
            server.wait_until(lambda: counted(server, "sent") >= 30, "30 spans")
            self.assertEqual(server.stop(), 0)
            spans = collector.spans()
            by_id = {span["spanId"]: span for span in spans}
            self.assertEqual([f for s in spans for f in [test_lines.check_span(s, by_id)] if f], [])
            self.assertEqual((len(spans), len(by_id)), (30, 30))
            for request in of_server(collector):
                parts = [s for s in spans if s.get("parentSpanId") == request["spanId"]]
                self.assertEqual([s["name"] for s in parts], PHASES)
                self.assertEqual(request["name"], "POST /v1/chat/completions")
                found = values(request)
                self.assertEqual((found["gen_ai.usage.output_tokens"],
                                  found["http.response.status_code"]), ("4", "200"))
                ends = [int(p["endTimeUnixNano"]) for p in parts[:3]]
                self.assertEqual(ends, [int(p["startTimeUnixNano"]) for p in parts[1:4]])
                now = time.time_ns()
                self.assertLess(abs(now - int(request["endTimeUnixNano"])), 300 * 10**9)
            self.assertEqual(set(collector.heads), {("/v1/traces", "application/json")})

    def test_traces_go_on_from_the_caller(self):
        with Collector() as collector, running.Server(ZEROPE, running.SMALL, "--otlp",
                                                      collector.url + "/own/path") as server:
            ask(server, traceparent=f"00-{TRACE}-{SPAN}-01")
            ask(server, traceparent=f"00-{TRACE}-{SPAN}-00")  # the caller records nothing
            ask(server, traceparent=f"00-{'0' * 32}-{SPAN}-01")  # not valid: a trace of its own
            ask(server)
            self.assertEqual(server.stop(), 0)
            followed, invalid, alone = of_server(collector)
            self.assertEqual((followed["traceId"], followed["parentSpanId"]), (TRACE, SPAN))
            self.assertNotEqual(followed["spanId"], SPAN)
            for span in (invalid, alone):
                self.assertNotIn("parentSpanId", span)
                self.assertNotIn(span["traceId"], (TRACE, "0" * 32))
            self.assertNotEqual(invalid["traceId"], alone["traceId"])
            self.assertEqual({path for path, _ in collector.heads}, {"/own/path"})

    def test_spans_hold_no_text_of_users(self):
        with Collector() as collector, running.Server(ZEROPE, running.SMALL, "--otlp",
                                                      collector.url) as server:
            server.post("/v1/chat/completions",
                        {**QUESTION, "stream": False,
                         "messages": [{"role": "user", "content": "my-own-words"}]})
            self.assertEqual(server.stop(), 0)
            self.assertEqual(len(of_server(collector)), 1)
            self.assertNotIn("my-own-words", json.dumps(collector.batches))

    def test_what_is_not_taken_is_counted_and_nobody_waits(self):
        held = threading.Event()
        for answer in (503, lambda _: held.wait(running.PATIENCE)):
            with Collector(answer) as collector, \
                    running.Server(ZEROPE, running.SMALL, "--otlp", collector.url) as server:
                ask(server)
                server.wait_until(lambda: collector.batches, "batch")
                for _ in range(3):  # while the batch is under way, or was refused
                    ask(server)
                server.wait_until(lambda: counted(server, "dropped") >= 6, "dropped spans")
                self.assertEqual(counted(server, "sent"), 0)
                held.set()
                collector.answer = 200
                ask(server)
                server.wait_until(lambda: counted(server, "sent") >= 6, "sent spans")
                self.assertEqual(server.stop(), 0)
        with running.Server(ZEROPE, running.SMALL, "--otlp", "http://127.0.0.1:9") as server:
            ask(server)  # nobody listens there
            server.wait_until(lambda: counted(server, "dropped") == 6, "dropped spans")
            self.assertEqual(server.stop(), 0)

    def test_a_collector_that_never_ends_holds_nothing_up(self):
        def drip(handler):
            try:
                while True:
                    handler.wfile.write(b"H")
                    time.sleep(0.2)
            except OSError:
                pass

        def flood(handler):
            try:
                handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    handler.wfile.write(b"x" * 4096)
            except OSError:
                pass
        for answer, result in ((drip, "dropped"), (flood, "sent")):
            with Collector(answer) as collector, \
                    running.Server(ZEROPE, running.SMALL, "--otlp", collector.url) as server:
                ask(server)
                server.wait_until(lambda: counted(server, result) == 6, result)
                self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
