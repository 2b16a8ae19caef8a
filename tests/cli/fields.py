#!/usr/bin/env python3
"""fields.py: checks that standard input is one JSON document with the given top-level fields.

Usage: zerope ... --json | fields.py [NAME ...] [NAME=VALUE ...]

A trailing [] or {} in NAME asks for a list or an object. Prints `json ok` or what is missing.
"""
import json
import sys


def refuse_constant(name):
    raise ValueError("%s is not JSON" % name)


def main():
    text = sys.stdin.buffer.read().decode("utf-8")
    try:
        document = json.loads(text, parse_constant=refuse_constant)
    except ValueError as error:
        sys.exit("not one JSON document: %s in %r" % (error, text[:200]))
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        kind = name[-2:] if name[-2:] in ("[]", "{}") else ""
        name = name[:-2] if kind else name
        if name not in document:
            sys.exit("field %s is missing in %s" % (name, sorted(document)))
        if kind and not isinstance(document[name], list if kind == "[]" else dict):
            sys.exit("field %s is %r" % (name, type(document[name])))
        if value and str(document[name]) != value:
            sys.exit("field %s is %r, expected %s" % (name, document[name], value))
    print("json ok")


main()
