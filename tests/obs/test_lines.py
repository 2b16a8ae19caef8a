#!/usr/bin/env python3
"""test_lines: log lines and span documents are what Python's JSON reader and the rules of OTLP/HTTP
say they must be.

Usage: test_lines.py OBS_PRINT
"""
import json
import re
import subprocess
import sys

LINE_FIELDS = ["time", "level", "event", "request_id", "api_key", "prompt", "n", "x", "text", "yes"]
SPAN_FIELDS = {"traceId", "spanId", "parentSpanId", "kind", "startTimeUnixNano", "endTimeUnixNano",
               "name", "attributes", "status"}


def check_line(line):
    """What is wrong with a log line; None: nothing."""
    if len(line) + 1 > 4096:
        return "%d bytes" % (len(line) + 1)
    if b"SECRET" in line or b"PRIVATE" in line:
        return "a secret, or content, is in it"
    if re.search(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]", line):
        return "a control character is in it"
    record = json.loads(line.decode("utf-8"))
    names = list(record)
    cut = record.pop("truncated", False)
    if names[:len(record)] != LINE_FIELDS[:len(record)] or (len(record) < len(LINE_FIELDS)
                                                            and not cut):
        return "fields %s" % names
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["time"]):
        return "time %s" % record["time"]
    if record["level"] not in ("error", "warn", "info", "debug") or record["n"] != 2 ** 64 - 1:
        return "level %s, n %s" % (record["level"], record["n"])
    return None


def check_value(value):
    """An AnyValue: one member; whole numbers are strings."""
    (kind, x), = value.items()
    return {"stringValue": lambda: isinstance(x, str),
            "intValue": lambda: isinstance(x, str) and re.fullmatch(r"-?\d+", x)}[kind]()


def check_span(span, by_id):
    """What is wrong with a span."""
    if set(span) - SPAN_FIELDS:
        return "unknown fields %s" % (set(span) - SPAN_FIELDS)
    if not re.fullmatch(r"[0-9a-f]{32}", span["traceId"]) or \
            not re.fullmatch(r"[0-9a-f]{16}", span["spanId"]):
        return "ids"
    begin, end = span["startTimeUnixNano"], span["endTimeUnixNano"]
    if not isinstance(begin, str) or not isinstance(end, str) or int(begin) > int(end):
        return "times of %s %s %s" % (span["name"], begin, end)
    if span["kind"] not in (1, 2) or not span["name"]:
        return "kind or name"
    if not all(check_value(a["value"]) and set(a) == {"key", "value"}
               for a in span.get("attributes", [])):
        return "attributes"
    parent = by_id.get(span.get("parentSpanId"))
    if (span["kind"] == 1) != (parent is not None):
        return "parent"
    if parent and (parent["traceId"] != span["traceId"] or
                   int(begin) < int(parent["startTimeUnixNano"]) or
                   int(end) > int(parent["endTimeUnixNano"])):
        return "not within its parent"
    return None


def main():
    def printed(what):
        return subprocess.run([sys.argv[1], what], capture_output=True, check=True).stdout

    lines = printed("lines").split(b"\n")
    wrong = [(line[:200], fault) for line in lines[:-1] for fault in [check_line(line)] if fault]
    if len(lines) != 501 or lines[-1] != b"":
        wrong.append("%d lines" % len(lines))
    if not any(b'"truncated":true' in line for line in lines):
        wrong.append("no line was cut")

    document = json.loads(printed("spans"))
    resource, = document["resourceSpans"]
    scope, = resource["scopeSpans"]
    spans = scope["spans"]
    by_id = {span["spanId"]: span for span in spans}
    wrong += [(span, fault) for span in spans for fault in [check_span(span, by_id)] if fault]
    failed = [span for span in spans if span.get("status", {}).get("code") == 2]
    if len(by_id) != len(spans) or len(failed) != 17 or len(spans) < 150:
        wrong.append("%d spans, %d ids, %d failed" % (len(spans), len(by_id), len(failed)))
    names = {a["key"] for a in resource["resource"]["attributes"]}
    if names != {"service.name", "service.version", "service.instance.id"}:
        wrong.append("resource %s" % names)
    print("\n".join(map(str, wrong)) or "%d lines, %d spans" % (len(lines) - 1, len(spans)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
