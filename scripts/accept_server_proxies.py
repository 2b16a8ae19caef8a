"""accept_server_proxies.py: acceptance lines of replicas behind nginx and HAProxy of Debian.

The configurations are those of deploy/, with the ports of this run in place of theirs.
"""
import contextlib
import http.client
import json
import re
import subprocess
import tempfile
import threading
import time

from accept_common import MODEL, ROOT, ZEROPE, record
from accept_server_deploy import free_port, judge, need, running

TOKENS, SESSIONS, TURNS = 48, 16, 4
CLIENTS = 6  # that ask on and on while a replica ends


# ---- servers and proxies


class Replicas:
    """Two servers on ports of their own; one can end and come back there."""

    def __init__(self):
        self.ports = [free_port(), free_port()]
        self.servers = [self.start(i) for i in range(2)]

    def start(self, i):
        return running.Server(ZEROPE, MODEL["smollm2"], "--port", self.ports[i], "-c", 2048, "-np",
                              8, "--kv-tokens", 40000, template=None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.__exit__()

    def completed(self):
        return [server.counted("zerope_requests_total", outcome="completed")
                for server in self.servers]


def nginx_command(text, folder):
    path = f"{folder}/nginx.conf"
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
                  f"events {{}}\nhttp {{ access_log off;\n{text}\n}}\n")
    program = [need("nginx", "nginx"), "-p", folder, "-e", f"{folder}/error.log", "-c", path]
    return program, [*program, "-t"]


def haproxy_command(text, folder):
    path = f"{folder}/haproxy.cfg"
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    program = [need("haproxy", "haproxy"), "-f", path]
    return [*program, "-db"], [*program, "-c"]


PROXIES = {"nginx": ("nginx/zerope.conf", nginx_command, r"listen 8080;", "listen 127.0.0.1:{};"),
           "haproxy": ("haproxy/haproxy.cfg", haproxy_command, r"bind :8080", "bind 127.0.0.1:{}")}


@contextlib.contextmanager
def proxy(name, ports):
    """(port, what its own check says of the configuration)"""
    path, command, listen, listens = PROXIES[name]
    text, port = (ROOT / "deploy" / path).read_text(encoding="utf-8"), free_port()
    text = re.sub(listen, listens.format(port), text)
    for i, own in enumerate(ports):
        text = text.replace(f"127.0.0.1:{8081 + i}", f"127.0.0.1:{own}")
    with tempfile.TemporaryDirectory(prefix="zerope-proxy-") as folder:
        program, check = command(text, folder)
        checked = judge(*check)
        checked["said"] = checked["said"].replace(folder + "/", "")
        with subprocess.Popen(program, stderr=subprocess.DEVNULL) as process:
            try:
                wait_until_ready(port)
                yield port, checked
            finally:
                process.terminate()


def wait_until_ready(port):
    end = time.monotonic() + running.PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError("the proxy has no replica that is ready")


# ---- clients


def ask(port, words, tokens, headers=None, **more):
    """(status, seconds at which each event with text came, whether the stream was whole)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=running.PATIENCE)
    body = {"messages": [{"role": "user", "content": words}], "max_tokens": tokens, "stream": True,
            "ignore_eos": True, "temperature": 0, **more}
    begun, times, done = time.monotonic(), [], False
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers or {})
        answer = connection.getresponse()
        for line in answer:
            if line == b"data: [DONE]\n":
                done = True
            elif line.startswith(b"data: ") and b'"content"' in line:
                times.append(time.monotonic() - begun)
        return answer.status, times, done
    finally:
        connection.close()


def streaming(port):
    """A token at a time: events that came by themselves, and when the first one did."""
    _, times, done = ask(port, "Tell a story.", TOKENS)
    alone = 1 + sum(b - a > 0.001 for a, b in zip(times, times[1:]))
    return {"events": len(times), "alone": alone, "first_seconds": times[0],
            "last_seconds": times[-1], "whole": done}


def sessions(port, replicas, name):
    """By each way to name a session: those whose turns all went to one replica; replicas used."""
    ways = {"header": lambda s: ({"x-session-id": f"session-{s}"}, {})}
    if name == "haproxy":
        ways["prompt_cache_key"] = lambda s: ({}, {"prompt_cache_key": f"session-{s}"})
        ways["first words"] = lambda s: ({}, {})
    found = {}
    for way, names in ways.items():
        kept, used = 0, set()
        for s in range(SESSIONS):
            before = replicas.completed()
            for turn in range(TURNS):
                words = f"{s} says hello. " * 40 if way == "first words" else "hello"
                headers, more = names(s)
                status, _, done = ask(port, f"{words} {turn}", 2, headers, **more)
                if status != 200 or not done:
                    raise RuntimeError(f"{name}: {way}: HTTP {status}")
            went = [b - a for a, b in zip(before, replicas.completed())]
            kept += sorted(went) == [0, TURNS]
            used |= {i for i, n in enumerate(went) if n}
        found[way] = {"sessions": SESSIONS, "kept": kept, "replicas": len(used)}
    return found


def draining(port, replicas):
    """Clients ask on and on; the first replica is told to end, ends, and comes back."""
    results, ended = [], threading.Event()

    def client(c):
        n = 0
        while not ended.is_set():
            n += 1
            try:
                results.append(ask(port, f"client {c} asks {n}", TOKENS // 2,
                                   {"x-session-id": f"{c}-{n}"}))
            except (OSError, http.client.HTTPException) as error:
                results.append((str(error) or type(error).__name__, [], False))
    clients = [threading.Thread(target=client, args=(c,)) for c in range(CLIENTS)]
    for thread in clients:
        thread.start()
    served = lambda i: replicas.servers[i].counted("zerope_requests_total", outcome="completed")
    old = replicas.servers[0]
    old.wait_until(lambda: served(0) >= 5 and served(1) >= 5, "requests at both replicas")
    code = old.stop()
    under_way = old.records("draining")[0]["requests"]
    after = served(1)
    replicas.servers[1].wait_until(lambda: served(1) >= after + 10, "requests at the other")
    replicas.servers[0] = replicas.start(0)
    old.__exit__()
    replicas.servers[0].wait_until(lambda: served(0) >= 5, "requests at the one that came back")
    ended.set()
    for thread in clients:
        thread.join()
    lost = [r[0] for r in results if r[0] != 200 or not r[2]]
    return {"requests": len(results), "lost": len(lost), "kinds_lost": sorted(set(map(str, lost))),
            "under_way_at_the_drained": under_way, "exit_code": code}


def behind(name):
    found = {}
    with Replicas() as replicas, proxy(name, replicas.ports) as (port, checked):
        found["config"] = checked
        found["streaming"] = streaming(port)
        found["sessions"] = sessions(port, replicas, name)
        found["draining"] = draining(port, replicas)
        found["closed"] = [judge("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}",
                                 f"http://127.0.0.1:{port}{path}")["said"]
                           for path in ("/metrics", "/admin/status", "/healthz")]
    stream, drain = found["streaming"], found["draining"]
    found["holds"] = (
        found["config"]["code"] == 0 and found["closed"] == ["404"] * 3 and
        stream["whole"] and stream["alone"] >= 0.9 * stream["events"] >= 0.9 * 0.5 * TOKENS and
        drain["lost"] == 0 and drain["exit_code"] == 0 and
        drain["under_way_at_the_drained"] > 0 and
        all(w["kept"] == SESSIONS and w["replicas"] == 2 for w in found["sessions"].values()))
    return found


def line_proxies():
    """nginx, HAProxy: tokens come one by one, sessions stay, a replica that ends loses nothing."""
    found = {name: behind(name) for name in PROXIES}
    return record("server", "proxies", all(f["holds"] for f in found.values()), **found)
