"""running.py: `zerope serve` as a child process on a free port, with its log, and plain requests.

What tests and measurements share. Waiting is for something that happens; PATIENCE ends what hangs.
"""
import collections
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SMALL = ROOT / "tests/data/arch/llama"  # random weights, 272 tokens: nearly one a byte
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<a>"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "zerope"
SMOLLM2 = pathlib.Path(os.environ.get("ZEROPE_MODELS", CACHE / "models")) / \
    "smollm2-135m-instruct-q4_1.gguf"
PATIENCE = 120  # seconds

Answer = collections.namedtuple("Answer", "status headers body")


def in_clients_python():
    """Goes on as a program of the environment that scripts/setup makes for others' clients."""
    python = CACHE / "clients/bin/python"
    if pathlib.Path(sys.prefix).resolve() != (CACHE / "clients").resolve():
        if not python.exists():
            sys.exit(f"{python} is missing: scripts/setup makes it")
        os.execv(python, [python, *sys.argv])


class Server:
    """A folder of its own holds template, keys, log and log of decisions; gone with the server."""

    def __init__(self, zerope, model=SMALL, *options, template=TEMPLATE, keys=None,
                 log_file=None):
        self.kept = tempfile.TemporaryDirectory(prefix="zerope-serve-")
        self.folder = pathlib.Path(self.kept.name)
        self.log_path, self.audit_path = self.folder / "log", self.folder / "audit"
        self.port = free_port() if log_file else 0
        command = [zerope, "serve", model, "--port", self.port, "--log-format", "json",
                   "--audit-file", self.audit_path, *options]
        if log_file:  # perhaps one that cannot be read
            command += ["--log-file", log_file]
        for option, text in (("--chat-template", template), ("--api-key-file", keys)):
            if text is not None:
                path = self.folder / option[2:]
                path.write_text(text, encoding="utf-8")
                command += [option, path]
        self.begun = time.monotonic()
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL,
                                            stderr=log)
        if log_file:
            self.url = f"http://127.0.0.1:{self.port}"
            self.wait_until(self.is_ready, "readiness")
        else:
            self.url = self.wait_for("ready")["url"]
            self.port = urllib.parse.urlsplit(self.url).port
        self.ready_seconds = time.monotonic() - self.begun

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.kept.cleanup()

    def records(self, event=None):
        """Whole lines of the log so far, as objects."""
        lines = self.log_path.read_text(encoding="utf-8").split("\n")[:-1]
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [r for r in found if event in (None, r["event"])]

    def audit(self, what=None):
        text = self.audit_path.read_text(encoding="utf-8") if self.audit_path.exists() else ""
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
        return [line for line in lines if what in (None, line["what"])]

    def wait_until(self, holds, what):
        """What `holds` returns once that is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = holds()
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"no {what}; exit code {self.process.poll()}; log:\n{text[-2000:]}")

    def wait_for(self, event):
        return self.wait_until(lambda: self.records(event), f"record {event}")[0]

    def is_ready(self):
        try:
            return self.ask("GET", "/readyz").status == 200
        except OSError:
            return False

    def ask(self, method, path, body=None, headers=None, timeout=PATIENCE):
        """One exchange on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, text, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def post(self, path, body, headers=None):
        """The answer's JSON; it must be a 200."""
        answer = self.ask("POST", path, body, headers)
        if answer.status != 200:
            raise RuntimeError(f"POST {path}: {answer.status} {answer.body[:500]}")
        return json.loads(answer.body)

    def get(self, path):
        answer = self.ask("GET", path)
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {answer.body[:500]}")
        return json.loads(answer.body)

    def metrics(self):
        """{sample with its labels: value}"""
        text = self.ask("GET", "/metrics").body.decode()
        rows = [line.rpartition(" ") for line in text.split("\n") if line and line[0] != "#"]
        return {name: float(value) for name, _, value in rows}

    def counted(self, metric, **labels):
        """Sum of a metric's samples that have these labels."""
        wanted = [f'{k}="{v}"' for k, v in labels.items()]
        return sum(value for name, value in self.metrics().items()
                   if name.partition("{")[0] == metric and all(w in name for w in wanted))

    def stop(self):
        """Asks it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def resident_bytes(pid):
    pages = pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def events(body):
    """The events of a stream's body: (name or None, data)."""
    found = []
    for block in body.decode().split("\n\n"):
        name, data = None, []
        for line in block.split("\n"):
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
        if data:
            found.append((name, "\n".join(data)))
    return found
