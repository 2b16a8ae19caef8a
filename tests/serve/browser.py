"""browser.py: a headless Chromium, told what to do over its own pipe (DevTools protocol).

It resolves no names, so that what a page wants from elsewhere fails. All that its pages ask for,
print or throw is kept. Waiting is for something that happens; PATIENCE ends what hangs.
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

PATIENCE = 120  # seconds
NAMES = ("chromium-headless-shell", "chromium")


def program():
    for name in NAMES:
        if shutil.which(name):
            return shutil.which(name)
    sys.exit(f"none of {', '.join(NAMES)} is there: scripts/setup installs it")


class Browser:
    """With one page."""

    def __init__(self):
        self.kept = tempfile.TemporaryDirectory(prefix="zerope-browser-")
        read_there, self.to = os.pipe()
        self.back, write_there = os.pipe()
        command = [program(), "--headless", "--remote-debugging-pipe", "--disable-gpu",
                   "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                   "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                   f"--user-data-dir={self.kept.name}/profile", "about:blank"]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # which does not work for root

        def place():
            high = os.dup2(read_there, 100), os.dup2(write_there, 101)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.log = (pathlib.Path(self.kept.name) / "log").open("wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, close_fds=False, preexec_fn=place)
        os.close(read_there)
        os.close(write_there)
        self.rest, self.n, self.session, self.asked = b"", 0, None, None
        self.requests, self.problems = [], []
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.tell("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.tell(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session = None
        self.tell("Browser.close")  # so that its own processes end before it does
        self.process.wait(PATIENCE)
        self.log.close()
        os.close(self.to)
        os.close(self.back)
        self.kept.cleanup()

    # ---- messages ----

    def receive(self, end):
        """The next message; events are noted."""
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            ready = select.select([self.back], [], [], max(left, 0))[0]
            some = os.read(self.back, 1 << 16) if ready and left > 0 else b""
            if not some:
                log = (pathlib.Path(self.kept.name) / "log").read_text(errors="replace")
                raise RuntimeError(f"the browser does not answer {self.asked}: {log[-2000:]}")
            self.rest += some
        text, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(text)
        what, of = message.get("method"), message.get("params", {})
        if what == "Network.requestWillBeSent":
            self.requests.append(of["request"]["url"])
        elif what == "Runtime.exceptionThrown":
            self.problems.append(of["exceptionDetails"])
        elif what == "Runtime.consoleAPICalled":
            self.problems.append(of["args"])
        elif what == "Log.entryAdded":
            self.problems.append(of["entry"])
        return message

    def tell(self, method, **params):
        self.n += 1
        self.asked = method, params
        message = {"id": self.n, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            answer = self.receive(end if time.monotonic() < end else 0)
            if answer.get("id") == self.n:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    # ---- the page ----

    def run(self, script):
        """The value of an expression, also of a promise."""
        answer = self.tell("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script, what=None):
        """Until the expression is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.run(f"Boolean({script})"):
                return
            time.sleep(0.02)
        raise RuntimeError(f"never: {what or script}; the page: "
                           f"{self.run('document.body.innerText')[:3000]}")

    def open(self, url):
        self.requests, self.problems = [], []
        self.tell("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href.startsWith('{url}')")

    def look_like(self, width, height=900, dark=False):
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.tell("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def press(self, key, text=None):
        """A key of the keyboard, by its name."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowUp": 38,
                "ArrowRight": 39, "ArrowDown": 40}[key]
        text = {"Enter": "\r", " ": " "}.get(key) if text is None else text
        event = {"key": key, "code": "Space" if key == " " else key,
                 "windowsVirtualKeyCode": code}
        if text:
            event["text"] = text
        self.tell("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event)
        self.tell("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self.tell("Input.insertText", text=text)

    def click(self, selector):
        """With the mouse, in the middle of it."""
        x, y = self.run(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{ block: 'center' }});
            const b = e.getBoundingClientRect();
            return [b.x + b.width / 2, b.y + b.height / 2];
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                      clickCount=1)

    def picture(self, path, whole=True):
        data = self.tell("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
