"""accept_server_deploy.py: acceptance lines of what stands around a server: monitoring, services.

Needs the Debian packages of scripts/setup --accept.
"""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from accept_common import ROOT, WORK, ZEROPE, record, run

sys.path.insert(0, str(ROOT / "tests/serve"))
import running  # noqa: E402  pylint: disable=wrong-import-position

QUESTION = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "seed": 1}


def need(program, package):
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin")
    if path is None:
        raise RuntimeError(f"{program} is missing: scripts/setup --accept installs {package}")
    return path


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def judge(*command, text="", **options):
    """A checker's exit code and what it said."""
    done = subprocess.run([str(c) for c in command], input=text, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    return {"code": done.returncode, "said": done.stdout.strip()}


def metrics_judged(*options):
    """What promtool's linter says of /metrics of a server that has answered."""
    promtool = need("promtool", "prometheus")
    with running.Server(ZEROPE, running.SMALL, *options) as server:
        server.post("/v1/chat/completions", QUESTION)
        text = server.ask("GET", "/metrics").body.decode()
    samples = sum(row[:1] not in ("", "#") for row in text.split("\n"))
    return {"samples": samples, **judge(promtool, "check", "metrics", text=text)}


def line_promtool():
    """promtool has nothing to say of /metrics, of peers' names only their spelling; rules hold."""
    own = metrics_judged()
    peers = metrics_judged("--metrics-compat", "vllm,llamacpp")
    spelled = re.compile(r"(vllm|llamacpp):\w+ (metric names should not contain ':'|"
                         r"non-counter metrics should not have \"_total\" suffix)")
    others = [row for row in peers["said"].split("\n") if not spelled.fullmatch(row)]
    folder, promtool = ROOT / "deploy/prometheus", need("promtool", "prometheus")
    rules = {command: judge(promtool, *command.split(), cwd=folder)
             for command in ("check config prometheus.yaml", "test rules rules-test.yaml")}
    holds = own["code"] == 0 and own["said"] == "" and not others and \
        all(row["code"] == 0 for row in rules.values())
    return record("server", "promtool", holds, own=own, peers=peers, others=others, rules=rules)


# ---- the service, the manifests


def socket_activated():
    """The answer of a server whose socket systemd-socket-activate opened."""
    activate = need("systemd-socket-activate", "systemd")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder) / "template"
        template.write_text(running.TEMPLATE, encoding="utf-8")
        command = [activate, "-l", f"127.0.0.1:{port}", str(ZEROPE), "serve", str(running.SMALL),
                   "--chat-template", str(template)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            try:  # the first connection starts it, and waits
                request = urllib.request.Request(
                    f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(QUESTION).encode())
                return json.load(connected(request))["choices"][0]["finish_reason"]
            finally:
                server.terminate()


def connected(request):
    """The answer, as soon as there is a server that is ready for it."""
    end = time.monotonic() + running.PATIENCE
    while True:
        try:
            return urllib.request.urlopen(request, timeout=running.PATIENCE)
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > end:
                raise
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


def unit_judged():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("zerope.service", "zerope.socket"):
            text = (ROOT / "deploy/systemd" / name).read_text(encoding="utf-8")
            (pathlib.Path(folder) / name).write_text(text.replace("/usr/bin/zerope", str(ZEROPE)),
                                                     encoding="utf-8")
        service = f"{folder}/zerope.service"
        verify = judge("systemd-analyze", "verify", service, f"{folder}/zerope.socket")
        said = judge("systemd-analyze", "security", "--offline=true", service)["said"]
    exposure = float(re.search(r"exposure level for zerope.service: ([\d.]+)", said)[1])
    return {"verify": verify, "exposure": exposure}


def manifests_judged():
    """Each object against the API's schema (kubernetes-validate of PyPI, kept)."""
    python, version = WORK / "kubernetes/bin/python", "1.30"
    if not python.exists():
        run(sys.executable, "-m", "venv", WORK / "kubernetes")
        run(python, "-m", "pip", "install", "-q", "kubernetes-validate==1.34.1")
    path = pathlib.Path("deploy/kubernetes/zerope.yaml")
    command = [python, "-m", "kubernetes_validate", "-k", version, "--strict"]
    with tempfile.TemporaryDirectory() as folder:  # a member that there is not must be found
        planted = pathlib.Path(folder) / "planted.yaml"
        planted.write_text((ROOT / path).read_text(encoding="utf-8").replace(
            "minAvailable: 1", "minAvailables: 1"), encoding="utf-8")
        sees = judge(*command, planted)["code"] != 0
    return {"api": version, "sees_a_planted_fault": sees, **judge(*command, path, cwd=ROOT)}


def line_deploy():
    """systemd's checks, an answer over its socket; Kubernetes' manifests by schema, no cluster."""
    unit, answer, manifests = unit_judged(), socket_activated(), manifests_judged()
    holds = unit["verify"]["code"] == 0 and unit["exposure"] <= 2 and \
        answer in ("stop", "length") and manifests["code"] == 0 and \
        manifests["sees_a_planted_fault"]
    return record("server", "deploy", holds, unit=unit, answer_over_its_socket=answer,
                  kubernetes=manifests)
