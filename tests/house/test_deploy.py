#!/usr/bin/env python3
"""test_deploy.py: what stands in deploy/ names flags, variables, paths, metrics and labels that
there are, and parses; Kubernetes' objects fit each other. Usage: test_deploy.py ZEROPE

Each check is also run on a planted fault. What needs the programs themselves (nginx, HAProxy,
promtool, schemas) is in scripts/accept server."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
ZEROPE = str(pathlib.Path(sys.argv[1]).resolve())
PAGE = (ROOT / "docs/SERVER.md").read_text(encoding="utf-8")
TEXTS = {path.relative_to(ROOT): path.read_text(encoding="utf-8")
         for path in sorted(DEPLOY.rglob("*")) if path.is_file()}
FOREIGN = {"CANARY_SALT", "XDG_CACHE_HOME"}  # variables that are not options of the program


def listed_metrics():
    """{name: {label: set of values, or None where any may come}} of the list in docs/SERVER.md."""
    found = {}
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+)[^|]* \| ([^|]*) \|", PAGE, re.M):
        of = {}
        for part in filter(None, (p.strip() for p in labels.split(";"))):
            label, _, values = part.partition(":")
            of[label] = set(re.findall(r"`(\w+)`", values)) or None
        for end in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            found[name + end] = {**of, "le": None} if end == "_bucket" else of
    return found


METRICS = listed_metrics()
AROUND = {"instance", "job"}  # labels that the scrape puts on


def wrong_metrics(text):
    for name, selector in re.findall(
            r"(?<![\w:$.-])((?:zerope|process)_[a-z0-9_]+)(?:\\?\{([^}]*)\})?", text):
        if name not in METRICS:
            yield f"no metric {name}"
            continue
        tests = re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*\\?"([^"\\]*)', selector)
        for label, operator, values in tests:
            known = METRICS[name].get(label, ())
            if label not in METRICS[name] and label not in AROUND:
                yield f"{name} has no label {label}"
            elif known and label not in AROUND:
                split = values.split("|") if "~" in operator else [values]
                yield from (f"{name}: {label} is never {v}" for v in split if v not in known)


def options_of_serve():
    done = subprocess.run([ZEROPE, "help", "serve", "--json"], capture_output=True, check=True)
    options = json.loads(done.stdout)["options"]
    return {o["name"] for o in options}, {o["env"] for o in options if o["env"]}


FLAGS, VARIABLES = options_of_serve()


def wrong_options(text):
    for line in text.split("\n"):
        if "zerope serve" in line or re.match(r"\s*- --", line):
            for flag in re.findall(r"(?<![\w-])--([a-z][a-z-]+)", line):
                if flag not in FLAGS:
                    yield f"serve has no --{flag}"
    for variable in re.findall(r"^\s*#?(?:- name: )?([A-Z][A-Z_]+)\s*(?:=|:|$)", text, re.M):
        if variable not in VARIABLES | FOREIGN:
            yield f"no variable {variable}"


def wrong_paths(text):
    known = set(re.findall(r"`(?:GET |POST )?(/[\w/-]+)`", PAGE)) | {"/v1/"}
    for path in re.findall(r"(?:path: |GET |location (?:= )?|path(?:_beg)? )(/[\w/]+)", text):
        if path not in known:
            yield f"no path {path}"


def wrong_objects(documents):
    """Of Kubernetes: labels, ports and names that one object wants of another."""
    by_kind = {}
    for d in documents:
        by_kind.setdefault(d["kind"], []).append(d)
    deployment, = by_kind["Deployment"]
    pod = deployment["spec"]["template"]
    container, = pod["spec"]["containers"]
    labels, ports = pod["metadata"]["labels"], {p["name"] for p in container["ports"]}
    selectors = [(d, d["spec"]["selector"].get("matchLabels", d["spec"]["selector"]))
                 for kind in ("Deployment", "Service", "PodDisruptionBudget")
                 for d in by_kind.get(kind, [])]
    for d, selector in selectors:
        if not selector or not selector.items() <= labels.items():
            yield f"{d['kind']} {d['metadata']['name']} selects no pod"
    for d in by_kind.get("Service", []):
        yield from (f"Service {d['metadata']['name']}: no port {p['targetPort']}"
                    for p in d["spec"]["ports"] if p["targetPort"] not in ports)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if container[probe]["httpGet"]["port"] not in ports:
            yield f"{probe}: no port {container[probe]['httpGet']['port']}"
    volumes = {v["name"] for v in pod["spec"]["volumes"]}
    yield from (f"no volume {m['name']}" for m in container["volumeMounts"]
                if m["name"] not in volumes)
    args = dict(a.lstrip("-").partition("=")[::2] for a in container["args"])
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    if pause + float(args["drain-timeout"]) >= pod["spec"]["terminationGracePeriodSeconds"]:
        yield "the pod is killed before it has drained"
    for d in by_kind.get("HorizontalPodAutoscaler", []):
        target = d["spec"]["scaleTargetRef"]
        if (target["kind"], target["name"]) != ("Deployment", deployment["metadata"]["name"]):
            yield "the autoscaler scales nothing"
        for metric in d["spec"]["metrics"]:
            yield from wrong_metrics(metric["pods"]["metric"]["name"])


def wrong_units(unit, socket):
    """Seconds of a stop; and systemd's own word, where it is there."""
    times = {k: float(v) for k, v in re.findall(r"^(Timeout\w+|WatchdogSec)=(\d+)$", unit, re.M)}
    drain = float(re.search(r"--drain-timeout (\d+)", unit)[1])
    if times["TimeoutStopSec"] <= drain:
        yield "the service is killed before it has drained"
    if shutil.which("systemd-analyze"):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("zerope.service", unit), ("zerope.socket", socket)):
                (pathlib.Path(folder) / name).write_text(
                    text.replace("/usr/bin/zerope", ZEROPE), encoding="utf-8")
            done = subprocess.run(["systemd-analyze", "verify", f"{folder}/zerope.service",
                                   f"{folder}/zerope.socket"], capture_output=True, text=True,
                                  check=False)
            yield from filter(None, done.stderr.split("\n"))


def documents(text):
    return [d for d in yaml.safe_load_all(text) if d is not None]


def of(name):
    return TEXTS[pathlib.Path("deploy") / name]


def planted():
    """(what should be found, what is)"""
    kube, unit = of("kubernetes/zerope.yaml"), of("systemd/zerope.service")
    rules, socket = of("prometheus/rules.yaml"), of("systemd/zerope.socket")
    return [
        ("no metric zerope_gone", wrong_metrics("rate(zerope_gone[1m])")),
        ("never lost", wrong_metrics('zerope_requests_total{outcome="lost"}')),
        ("never lost", wrong_metrics('zerope_requests_total{outcome=~"failed|lost"}')),
        ("no label kind", wrong_metrics('zerope_requests_total{kind="x"}')),
        ("no metric zerope_step_seconds", wrong_metrics("zerope_step_seconds > 1")),
        ("never shut", wrong_metrics(rules.replace('state="open"', 'state="shut"'))),
        ("no --ports", wrong_options(kube.replace("--port=", "--ports="))),
        ("no --log-formats", wrong_options(unit.replace("--log-format", "--log-formats"))),
        ("no variable ZEROPE_MODELS", wrong_options("ZEROPE_MODELS=x\n")),
        ("no path /ready", wrong_paths(kube.replace("/readyz", "/ready"))),
        ("selects no pod", wrong_objects(documents(kube.replace(
            "  selector: {app: zerope}", "  selector: {app: other}")))),
        ("no port web", wrong_objects(documents(kube.replace("port: http}\n", "port: web}\n")))),
        ("before it has drained", wrong_objects(documents(kube.replace(
            "PeriodSeconds: 60", "PeriodSeconds: 50")))),
        ("scales nothing", wrong_objects(documents(kube.replace(
            "kind: Deployment, name: zerope", "kind: Deployment, name: other")))),
        ("before it has drained", wrong_units(unit.replace("StopSec=45", "StopSec=30"), socket)),
    ]


def main():
    blind = [what for what, found in planted() if not any(what in f for f in found)]
    wrong = [f"the check for '{what}' sees nothing" for what in blind]
    for path, text in TEXTS.items():
        found = [*wrong_metrics(text), *wrong_options(text), *wrong_paths(text)]
        if path.suffix == ".yaml":
            found += [] if documents(text) else ["no document"]
        if path.suffix == ".json":
            json.loads(text)
        wrong += [f"{path}: {f}" for f in found]
    wrong += wrong_objects(documents(of("kubernetes/zerope.yaml")))
    wrong += wrong_units(of("systemd/zerope.service"), of("systemd/zerope.socket"))
    rules = documents(of("prometheus/rules.yaml"))[0]["groups"]
    tests = documents(of("prometheus/rules-test.yaml"))[0]["tests"]
    rung = {t["alertname"] for group in tests for t in group["alert_rule_test"] if t["exp_alerts"]}
    wrong += [f"rules-test.yaml never rings {r['alert']}" for group in rules for r in group["rules"]
              if "alert" in r and r["alert"] not in rung]
    print("\n".join(wrong) or f"{len(TEXTS)} files, {len(METRICS)} series known")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
