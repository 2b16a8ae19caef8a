#!/usr/bin/env python3
"""grafana_dashboard.py: deploy/grafana/zerope.json, a panel for every metric of the program.

Usage: tools/grafana_dashboard.py OBS_PRINT [--check]
OBS_PRINT (tests/obs_print of a build) prints the list, as for tools/metrics_page.py. --check only
tells whether the file is up to date (exit code 1 if not).
"""
import json
import pathlib
import re
import subprocess
import sys

PATH = pathlib.Path(__file__).resolve().parent.parent / "deploy/grafana/zerope.json"
WIDTH, HEIGHT, ACROSS = 8, 7, 3
SOURCE = {"type": "prometheus", "uid": "${source}"}
UNITS = (("_seconds", "s"), ("_seconds_total", "s"), ("_bytes", "bytes"), ("_bytes_total", "bytes"),
         ("_ratio", "percentunit"))
OTHER_SCALES = {"process_start_time_seconds": "dateTimeAsIso"}


def metrics(page):
    """(section, [(name, kind, labels, meaning)]) of the printed list, until the buckets."""
    sections = []
    for line in page.split("\n"):
        if line.startswith("**"):
            sections.append((line.strip("*"), []))
        row = re.fullmatch(r"\| `(\w+)` \| (\w+)[^|]* \| ([^|]*) \| (.*) \|", line)
        if row and sections:
            labels = [part.split(":")[0].strip() for part in row[3].split(";") if part.strip()]
            sections[-1][1].append((row[1], row[2], labels, row[4]))
    return sections


def queries(name, kind, labels):
    """(expression, legend) pairs."""
    chosen = f'{name}{{instance=~"$instance"}}'
    by = ", ".join(["instance", *labels])
    legend = " ".join(f"{{{{{label}}}}}" for label in ["instance", *labels])
    if kind == "counter":
        return [(f"sum by ({by}) (rate({chosen}[$__rate_interval]))", legend)]
    if kind == "histogram":
        buckets = f'{name}_bucket{{instance=~"$instance"}}'
        by = ", ".join(["le", *labels])
        legend = " ".join(f"{{{{{label}}}}}" for label in labels)
        return [(f"histogram_quantile({q}, sum by ({by}) (rate({buckets}[$__rate_interval])))",
                 f"p{100 * q:.0f} {legend}".strip()) for q in (0.5, 0.95, 0.99)]
    return [(chosen, legend)]


def unit_of(name, kind):
    found = [unit for end, unit in UNITS if name.endswith(end)]
    unit = OTHER_SCALES.get(name, found[0] if found else "short")
    per_second = {"short": "cps", "bytes": "Bps", "s": "percentunit"}  # seconds a second: a share
    return per_second.get(unit, unit) if kind == "counter" else unit


def panel(metric, number, x, y):
    name, kind, labels, meaning = metric
    return {"id": number, "title": name.removeprefix("zerope_"), "description": meaning,
            "type": "table" if kind == "info" else "timeseries", "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": unit_of(name, kind), "min": 0}, "overrides": []},
            "targets": [{"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expression,
                         "legendFormat": legend, "instant": kind == "info",
                         "format": "table" if kind == "info" else "time_series"}
                        for i, (expression, legend) in enumerate(queries(name, kind, labels))]}


def panels(sections):
    found, y = [], 0
    for title, rows in sections:
        found.append({"id": len(found) + 1, "type": "row", "title": title, "collapsed": False,
                      "panels": [], "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y += 1
        for i, metric in enumerate(rows):
            place = i % ACROSS * WIDTH, y + i // ACROSS * HEIGHT
            found.append(panel(metric, len(found) + 1, *place))
        y += -(-len(rows) // ACROSS) * HEIGHT
    return found


def dashboard(page):
    instances = {"name": "instance", "type": "query", "datasource": SOURCE, "multi": True,
                 "includeAll": True, "current": {"text": "All", "value": "$__all"},
                 "query": "label_values(zerope_server_state, instance)", "refresh": 2}
    return {"title": "zerope", "uid": "zerope", "schemaVersion": 38, "version": 1,
            "tags": ["zerope"], "time": {"from": "now-1h", "to": "now"}, "refresh": "15s",
            "editable": True,
            "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"},
                                    instances]},
            "panels": panels(metrics(page))}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        print(__doc__)
        return 2
    page = subprocess.run([sys.argv[1], "page"], capture_output=True, text=True, check=True).stdout
    text = json.dumps(dashboard(page), indent=1) + "\n"
    if sys.argv[2:]:
        current = PATH.exists() and PATH.read_text(encoding="utf-8") == text
        print(f"{PATH.name}: " + ("current" if current else "stale"))
        return not current
    PATH.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
