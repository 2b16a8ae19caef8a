#!/usr/bin/env python3
"""test_exposition: whole expositions are well-formed by a strict reading of the format, by the
parsers of prometheus_client, and by promtool where it is installed.

Usage: test_exposition.py OBS_PRINT
"""
import math
import re
import shutil
import subprocess
import sys

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's, whichever Python runs this
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
VALUE = r"[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN"
SAMPLE = re.compile(r"(%s)(?:\{(%s(?:,%s)*)\})? (%s)" % (NAME, LABEL, LABEL, VALUE))
HEAD = re.compile(r"# (HELP|TYPE) (%s) (.+)" % NAME)
KINDS = ("counter", "gauge", "histogram")

findings = []


def found(number, text):
    findings.append("line %d: %s" % (number, text))


def family_of(name, kinds):
    """The family that a sample of this name belongs to."""
    for end in ("_bucket", "_sum", "_count"):
        if name.endswith(end) and kinds.get(name[:-len(end)]) == "histogram":
            return name[:-len(end)]
    return name


def check_histogram(number, name, series):
    """series: {le: value} and "_sum", "_count" of one set of labels, in the order they came."""
    bounds = [key for key in series if key not in ("_sum", "_count")]
    numbers = [float(bound) for bound in bounds]
    counts = [series[bound] for bound in bounds]
    if numbers != sorted(set(numbers)) or not numbers or numbers[-1] != math.inf:
        found(number, "%s: bounds do not rise to +Inf: %s" % (name, bounds))
    if counts != sorted(counts):
        found(number, "%s: counts of buckets fall: %s" % (name, counts))
    if "_sum" not in series or "_count" not in series:
        found(number, "%s: no sum or no count" % name)
    elif series["_count"] != counts[-1]:
        found(number, "%s: count is not that of the last bucket" % name)


class Reader:
    """One pass over the lines of an exposition in format 0.0.4."""

    def __init__(self):
        self.helps, self.kinds, self.seen, self.closed = {}, {}, set(), set()
        self.family, self.histograms = None, {}

    def head(self, number, kind, name, rest):
        known = self.helps if kind == "HELP" else self.kinds
        if name in known:
            found(number, "second %s of %s" % (kind, name))
        known[name] = rest
        if kind == "TYPE" and (rest not in KINDS or name not in self.helps or
                               name == self.family):
            found(number, "TYPE %s of %s, which must follow its HELP and precede its samples"
                  % (rest, name))

    def sample(self, number, name, labels, value):
        family = family_of(name, self.kinds)
        if family not in self.kinds:
            found(number, "%s has no TYPE" % name)
        if family != self.family:
            if family in self.closed:
                found(number, "samples of %s are not in one group" % family)
            self.closed.add(family)
            self.family = family
        pairs = re.findall(LABEL, labels or "")
        names = [pair.split("=", 1)[0] for pair in pairs]
        if (name, tuple(sorted(pairs))) in self.seen or len(set(names)) != len(names):
            found(number, "second sample or label: %s{%s}" % (name, labels))
        self.seen.add((name, tuple(sorted(pairs))))
        kind = self.kinds.get(family)
        if kind == "counter" and (not name.endswith("_total") or float(value) < 0):
            found(number, "%s %s is no counter" % (name, value))
        if kind == "histogram":
            le = [pair[4:-1] for pair in pairs if pair.startswith("le=")]
            own = (family, tuple(pair for pair in pairs if not pair.startswith("le=")))
            key = le[0] if le else name[len(family):]
            self.histograms.setdefault(own, (number, {}))[1][key] = float(value)

    def read(self, text):
        if not text.endswith("\n"):
            found(0, "the last line has no end")
        for number, line in enumerate(text.split("\n")[:-1], 1):
            head, sample = HEAD.fullmatch(line), SAMPLE.fullmatch(line)
            if head:
                self.head(number, *head.groups())
            elif sample:
                self.sample(number, *sample.groups())
            else:
                found(number, "neither head nor sample: %r" % line)
        for (name, _), (number, series) in self.histograms.items():
            check_histogram(number, name, series)
        if set(self.kinds) != self.closed:
            found(0, "heads without samples: %s" % (set(self.kinds) - self.closed))


def samples_of(families):
    return {(sample.name, tuple(sorted((k, v if k != "le" else float(v))
                                       for k, v in sample.labels.items()))): sample.value
            for family in families for sample in family.samples}


def check_rejections():
    """What must be found is found: each text has one mistake."""
    head = "# HELP a_total A.\n# TYPE a_total counter\n"
    bad = ("a_total 1\n", head + "a_total 1", head + "a_total 1\na_total 2\n",
           head + 'a_total{b="c} 1\n', head + 'a_total{b="\\x"} 1\n', head + "a_total -1\n",
           head + head + "a_total 1\n", head, head + "a_total 1 \n", head + "a_total one\n",
           head.replace("counter", "count") + "a_total 1\n",
           "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\n"
           "h_sum 1\nh_count 1\n",
           "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
           "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_count 1\n")
    for text in bad:
        Reader().read(text)
        if not findings:
            return "the mistake in %r is not found" % text
        findings.clear()
    return None


def main():
    def printed(what):
        return subprocess.run([sys.argv[1], what], capture_output=True, check=True).stdout

    missed = check_rejections()
    if missed:
        print(missed)
        return 1
    for what in ("prometheus", "compat"):
        reader = Reader()
        reader.read(printed(what).decode("utf-8"))
        print("%s: %d families, %d samples" % (what, len(reader.kinds), len(reader.seen)))
    text = samples_of(parse_text(printed("prometheus").decode("utf-8")))
    opened = samples_of(parse_open(printed("openmetrics").decode("utf-8")))
    # What the clock moves is not the same in two runs.
    differ = [key for key in text.keys() | opened.keys() if text.get(key) != opened.get(key) and
              not key[0].startswith(("process_", "zerope_memory_"))]
    if differ or len(text) < 1000:
        findings.append("the formats differ in %s" % sorted(differ)[:5])
    if not any('mod\\el é {a="b"},\ufffd' == dict(key[1]).get("model") for key in text):
        findings.append("the name of the model does not come back")
    if shutil.which("promtool"):
        run = subprocess.run(["promtool", "check", "metrics"], input=printed("prometheus"),
                             capture_output=True)
        if run.returncode != 0:
            findings.append("promtool: " + run.stderr.decode())
    print("\n".join(findings) or "well-formed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
