"""accept_server_deploy.py: acceptance lines of what stands around a server: monitoring, proxies.

Needs the Debian packages that scripts/setup names.
"""
import re
import shutil
import subprocess
import sys

from accept_common import ROOT, ZEROPE, record

sys.path.insert(0, str(ROOT / "tests/serve"))
import running  # noqa: E402  pylint: disable=wrong-import-position

QUESTION = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "seed": 1}


def need(program, package):
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin")
    if path is None:
        raise RuntimeError(f"{program} is missing: scripts/setup installs {package}")
    return path


def judge(*command, text=""):
    """A checker's exit code and what it said."""
    done = subprocess.run([str(c) for c in command], input=text, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
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
    """promtool has nothing to say of /metrics; of peers' names only how these are spelled."""
    own = metrics_judged()
    peers = metrics_judged("--metrics-compat", "vllm,llamacpp")
    spelled = re.compile(r"(vllm|llamacpp):\w+ (metric names should not contain ':'|"
                         r"non-counter metrics should not have \"_total\" suffix)")
    others = [row for row in peers["said"].split("\n") if not spelled.fullmatch(row)]
    holds = own["code"] == 0 and own["said"] == "" and not others
    return record("server", "promtool", holds, own=own, peers=peers, others=others)
