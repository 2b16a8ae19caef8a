#!/usr/bin/env python3
"""test_dashboard: the dashboard in a headless browser: what a visitor sees and what an admin does.
Usage: test_dashboard.py ZEROPE [--pictures FOLDER]"""
import json
import pathlib
import sys
import tempfile
import unittest

import running
from browser import Browser, program

PICTURES = pathlib.Path(sys.argv[sys.argv.index("--pictures") + 1]) \
    if "--pictures" in sys.argv else None
ZEROPE = sys.argv[1]
del sys.argv[1:]
KEY = "admin-secret-7"
SECTIONS = ("latency", "evaporation", "gates", "distance", "audit")


class Page(unittest.TestCase):
    def begin(self, *options, candidate=running.SMALL):
        """A server with a candidate, shares by hand alone, and a page that is not open yet."""
        options = (*options, "-c", 512, "-np", 4, "--canary-manual")
        if candidate:
            options += ("--candidate", candidate)
        self.server = self.enterContext(running.Server(ZEROPE, running.SMALL, *options))
        if candidate:
            self.server.wait_until(lambda: self.server.audit("canary_held"), "candidate")
        self.page = self.enterContext(Browser())

    def begin_with_key(self, *options):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="zerope-keys-"))
        keys = pathlib.Path(folder) / "admin"
        keys.write_text(f"chief {KEY}\n", encoding="utf-8")
        self.begin("--admin-key-file", keys, *options)

    def open(self, address=None):
        self.page.open(address or self.server.url + "/")
        self.page.until("document.querySelectorAll('#health dd').length > 0")

    def open_all(self):
        self.open()
        self.page.until("document.querySelector('#audit tbody tr')")

    def text(self, selector):
        return self.page.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def tile(self, list_, term):
        """What stands below a term."""
        return self.page.run(f"""[...document.querySelectorAll('#{list_} dt')]
            .find((dt) => dt.textContent === {json.dumps(term)})?.nextSibling.firstChild
            .textContent ?? null""")

    def until_tile(self, list_, term, value):
        self.page.until(f"""[...document.querySelectorAll('#{list_} dt')]
            .find((dt) => dt.textContent === {json.dumps(term)})?.nextSibling.firstChild
            .textContent === {json.dumps(value)}""", f"{term} is {value}")

    def status(self):
        return json.loads(self.server.ask("GET", "/admin/status", headers={
            "authorization": "Bearer " + KEY}).body)

    def canary(self):
        return self.status()["rollout"]["canary"]

    def type_reason(self, text):
        self.page.until("document.querySelector('#confirm').open")
        self.assertEqual(self.page.run("document.activeElement.id"), "reason")
        self.page.type(text)

    def check_clean(self):
        """Nothing was asked for elsewhere; nothing failed, or was refused by the policy."""
        elsewhere = [r for r in self.page.requests
                     if not (r + "/").startswith((self.server.url + "/", "data:"))]
        self.assertEqual(elsewhere, [])
        self.assertEqual(self.page.problems, [])


class Visitor(Page):
    def test_sees_what_status_says_and_no_more(self):
        self.begin_with_key()
        self.open()
        self.assertEqual(self.tile("health", "State"), "ready")
        self.assertEqual(self.tile("health", "Model"), "llama")
        self.assertEqual(self.page.run("document.title"), "llama · zerope")
        self.assertIsNone(self.tile("health", "Completed"))
        for name in SECTIONS:
            self.assertEqual(self.page.run(
                f"document.querySelector('[aria-labelledby={name}-title]').checkVisibility()"),
                False, name)
        self.page.until("performance.getEntriesByName(new URL('status', location).href)"
                        ".length > 1", "a second look")
        asked = {r[len(self.server.url):] for r in self.page.requests if r.startswith("http")}
        self.assertEqual(asked, {"/", "/dashboard.js", "/dashboard.css", "/status"})
        self.check_clean()

    def test_is_told_where_admin_is_closed(self):
        self.begin()
        self.open()
        self.page.until("document.querySelector('#canary-tiles').innerText.includes('closed')")
        self.page.click("#roll-back")
        self.type_reason("a try")
        self.page.click("#confirm-yes")
        self.page.until("!document.querySelector('#error').hidden")
        self.assertIn("/admin is closed", self.text("#error"))
        # The console names the answer of 403 that was asked for, and nothing else.
        self.assertEqual([p.get("text", "")[:50] for p in self.page.problems],
                         ["Failed to load resource: the server responded with"])

    def test_is_told_that_the_server_is_gone(self):
        self.begin("--admin-open")
        self.open_all()
        self.check_clean()
        self.server.stop()
        self.page.until("document.querySelector('#error').innerText.includes('does not answer')")
        self.assertEqual(self.text("#state"), "no answer")


class Admin(Page):
    def test_gives_the_key_once_for_what_was_pressed(self):
        self.begin_with_key()
        self.open()
        # By keyboard alone: the slider, its button, the reason, the key.
        self.page.run("document.querySelector('#share').focus()")
        self.page.press("ArrowRight")
        self.page.press("ArrowRight")
        self.assertEqual(self.text("#share-text"), "5 %")
        self.page.press("Tab")
        self.assertEqual(self.page.run("document.activeElement.id"), "set")
        self.page.press("Enter")
        self.type_reason("by keyboard")
        self.page.press("Enter")
        self.page.until("document.querySelector('#key').open")
        self.assertEqual(self.page.run("document.activeElement.id"), "key-input")
        self.page.type("not-the-key-at-all")
        self.page.press("Enter")
        self.page.until("document.querySelector('#key').open && "
                        "document.querySelector('#key-text').innerText.includes('not known')")
        self.assertEqual(self.canary()["share_percent"], 0)
        self.page.type(KEY)
        self.page.press("Enter")
        # Nothing else is pressed: it is done.
        self.until_tile("canary-tiles", "Candidate gets", "5 %")
        self.assertEqual(self.canary()["share_percent"], 5)
        decision = self.server.audit("canary_set")[-1]
        self.assertEqual((decision["actor"], decision["why"]), ("chief", "by keyboard"))
        self.page.until("document.querySelector('#audit').innerText.includes('by keyboard')")
        # The key is nowhere but in the script.
        self.assertEqual(self.page.run("localStorage.length + sessionStorage.length"), 0)
        self.assertEqual(self.page.run("document.cookie"), "")
        self.assertNotIn(KEY, self.page.run("document.documentElement.outerHTML"))
        self.assertEqual(self.page.run("document.querySelector('#key-input').value"), "")
        self.assertFalse(any(KEY in r for r in self.page.requests))
        # Forgotten, it has to be typed again.
        self.page.click("#key-button")
        self.page.until("!document.querySelector('#latency-box').checkVisibility()")
        self.assertIsNone(self.tile("canary-tiles", "Candidate gets"))
        self.page.click("#key-button")
        self.page.until("document.querySelector('#key').open")
        self.page.press("Escape")
        self.page.until("!document.querySelector('#key').open")

    def test_moves_the_share(self):
        self.begin("--admin-open")
        self.open_all()
        self.until_tile("canary-tiles", "Candidate gets", "0 %")
        self.page.run("document.querySelector('#share').focus()")
        for percent in (1, 5, 20, 100):
            self.page.press("ArrowRight")
            self.page.click("#set")
            self.type_reason(f"to {percent}")
            self.page.click("#confirm-yes")
            self.until_tile("canary-tiles", "Candidate gets", f"{percent} %")
            self.assertEqual(self.canary()["share_percent"], percent)
            self.page.run("document.querySelector('#share').focus()")
        # A share that is not confirmed, or has no reason, changes nothing.
        self.page.press("ArrowLeft")
        self.page.click("#set")
        self.page.until("document.querySelector('#confirm').open")
        self.page.click("#confirm-yes")
        self.assertTrue(self.page.run("document.querySelector('#confirm').open"))
        self.page.press("Escape")
        self.page.until("!document.querySelector('#confirm').open")
        self.assertEqual(self.canary()["share_percent"], 100)
        for button, what, state in (("resume", "canary_resumed", "ramping"),
                                    ("hold", "canary_held", "held"),
                                    ("roll-back", "canary_rolled_back", "rolled back")):
            self.page.click("#" + button)
            self.type_reason("try " + button)
            self.page.click("#confirm-yes")
            self.until_tile("canary-tiles", "State", state)
            self.assertEqual(self.server.audit(what)[-1]["why"], "try " + button)
        self.until_tile("canary-tiles", "Candidate gets", "0 %")
        self.assertEqual(self.canary()["state"], "rolled_back")
        self.check_clean()

    def test_closes_the_breaker(self):
        self.begin("--admin-open")
        self.open_all()
        self.until_tile("canary-tiles", "Breaker", "closed")
        self.assertFalse(self.page.run("document.querySelector('#close-breaker').checkVisibility()"))
        self.server.post("/admin/breaker", {"action": "open", "why": "a try"})
        self.until_tile("canary-tiles", "Breaker", "open")
        self.page.click("#close-breaker")
        self.type_reason("enough")
        self.page.click("#confirm-yes")
        self.until_tile("canary-tiles", "Breaker", "closed")
        self.assertEqual(self.server.audit("breaker_closed")[-1]["why"], "enough")
        self.check_clean()

    def test_reads_the_errors(self):
        self.begin("--admin-open", candidate=None)
        self.open_all()
        self.page.run("document.querySelector('#distance-text').value = 'too short'")
        self.page.click("#measure")
        self.page.until("!document.querySelector('#error').hidden")
        self.assertIn("from 16 to 2048 can be measured", self.text("#error"))
        self.assertTrue(self.page.run("document.querySelector('#roll-back').disabled"))
        # The next thing that works takes the words away.
        self.page.run("document.querySelector('#distance-text').value = ''")
        self.page.click("#measure")
        self.page.until("document.querySelector('#error').hidden")

    def test_texts_stay_texts(self):
        self.begin("--admin-open")
        why = "<img src=x onerror=alert(1)><b>bold</b>"
        self.server.post("/admin/canary", {"action": "set", "percent": 5, "why": why})
        self.open_all()
        self.page.until("document.querySelector('#audit').innerText.includes('<img src=x')")
        self.assertEqual(self.page.run("document.querySelectorAll('main img, main b').length"),
                         self.page.run("document.querySelectorAll('.chart b').length"))
        self.check_clean()

    def ask_for_answers(self, n):
        for i in range(n):
            answer = self.server.ask("POST", "/v1/completions", {
                "prompt": "Hello " * (i % 5 + 1), "max_tokens": 8, "ignore_eos": True})
            self.assertEqual(answer.status, 200)

    def test_sees_figures_that_are_those_of_status(self):
        self.begin("--admin-open")
        self.open_all()
        self.page.until("document.querySelectorAll('#latency .chart').length === 6")
        self.ask_for_answers(20)
        self.until_tile("health", "Completed", "20")
        self.page.until("document.querySelector('#latency polyline')", "a line")
        self.page.until("document.querySelector('#latency b')", "figures of the last minute")
        self.page.click("#measure")
        self.page.until("document.querySelectorAll('#distance svg').length === 2")
        self.page.until("document.querySelectorAll('#strength-bars svg').length === 2")
        models = self.status()["models"]
        row = self.page.run("[...document.querySelector('#ratios tbody').rows[1].cells]"
                            ".map((c) => c.innerText)")
        self.assertAlmostEqual(float(row[1]), models["baseline"]["positional_strength"], 3)
        self.assertEqual(row[1], row[2])  # the same model twice
        self.assertIn("64 of 64", self.text("#ratios"))
        # Maps are read by keyboard; the cell that is read is the document's.
        measured = self.server.get("/admin/distance")["measured"]
        self.page.run("document.querySelector('#distance svg').focus()")
        for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
            self.page.press(key)
        reading = self.text("#distance .reading")
        self.assertIn("Layer 1, 1 back: ", reading)
        shown = float(reading.split(": ")[1].split(" ")[0])
        self.assertAlmostEqual(shown, measured["baseline"]["layers"][1]["weight"][1], 4)
        self.page.run("document.querySelector('#gates svg').focus()")
        self.page.press("ArrowRight")
        self.assertEqual(self.text("#gates .reading"),
                         "Layer 0, head 1: 8 of 8 pairs rotate (rope)")
        self.check_clean()

    def test_quantiles_are_those_of_the_histogram(self):
        self.begin("--admin-open")
        self.open()
        buckets = [[1, 10], [2, 30], [4, 40], ["Infinity", 40]]
        for before, q, expected in ((None, .5, 1.5), (None, .25, 1.0), (None, .9, 3.2),
                                    ([[1, 10], [2, 10], [4, 10], ["Infinity", 10]], .5, 1.75),
                                    (buckets, .5, None)):
            def script(x):
                return json.dumps(x).replace('"Infinity"', "Infinity")
            got = self.page.run(f"quantile({script(buckets)}, {script(before)}, {q})")
            self.assertEqual(got if got is None else round(got, 9), expected)

    def test_every_width_in_light_and_dark(self):
        self.begin("--admin-open")
        self.ask_for_answers(10)
        self.open_all()
        self.page.click("#measure")
        self.page.until("document.querySelectorAll('#distance svg').length === 2")
        colours = {}
        for width in (360, 600, 861, 1600):
            for dark in (False, True):
                self.page.look_like(width, dark=dark)
                name = f"{width} {'dark' if dark else 'light'}"
                self.page.until(f"innerWidth === {width}")
                self.page.until("document.documentElement.scrollWidth <= innerWidth",
                                f"no scrolling to the side at {name}")
                self.page.until("[...document.querySelectorAll('.map svg')].every((svg) =>"
                                " svg.getBoundingClientRect().right <="
                                " svg.closest('section').getBoundingClientRect().right)",
                                f"maps inside their boxes at {name}")
                colours[dark] = self.page.run(
                    "getComputedStyle(document.body).backgroundColor +"
                    " getComputedStyle(document.body).color")
                self.check_contrast(name)
                if PICTURES:
                    height = self.page.run("document.documentElement.scrollHeight")
                    self.page.look_like(width, height, dark)
                    self.page.run("new Promise((done) => requestAnimationFrame(() =>"
                                  " requestAnimationFrame(done)))")
                    self.page.picture(PICTURES / f"{name.replace(' ', '-')}.png")
        self.assertNotEqual(colours[False], colours[True])
        self.check_clean()

    def check_contrast(self, name):
        """Of all texts with their ground, WCAG's 4.5; disabled buttons aside."""
        poor = self.page.run("""(() => {
            const read = (c) => c.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b].map((x) => x / 255).map((x) =>
                x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4)
                .reduce((sum, x, i) => sum + x * [.2126, .7152, .0722][i], 0);
            const ground = (e) => {
                const c = read(getComputedStyle(e).backgroundColor);
                return c.length === 3 || !e.parentElement ? c : ground(e.parentElement);
            };
            const all = [];
            const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (texts.nextNode()) {
                const e = texts.currentNode.parentElement;
                if (!texts.currentNode.data.trim() || !e.checkVisibility() ||
                    e.closest('svg, :disabled, option')) continue;
                const [a, b] = [light(read(getComputedStyle(e).color)), light(ground(e))];
                const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
                if (ratio < 4.5) all.push([texts.currentNode.data, ratio]);
            }
            return all;
        })()""")
        self.assertEqual(poor, [], name)

    def test_all_of_it_is_reached_by_tab(self):
        self.begin("--admin-open")
        self.open_all()
        self.page.until("document.querySelector('#gates svg')")
        reached = []
        for _ in range(40):
            self.page.press("Tab")
            name = self.page.run("document.activeElement.id || document.activeElement.tagName +"
                                 " ' ' + document.activeElement.parentElement.className")
            if name in reached and name != "svg map":
                break
            reached.append(name)
        for name in ("share", "hold", "resume", "roll-back", "svg map", "distance-text",
                     "distance-tokens", "distance-shows", "measure", "audit-scroll"):
            self.assertIn(name, reached)
        self.check_clean()

    def test_below_a_prefix(self):
        self.begin("--admin-open", "--prefix", "/llm")
        self.assertTrue(self.server.url.endswith("/llm"))
        for address in (self.server.url, self.server.url + "/"):
            self.open(address)
            self.page.until("document.querySelector('#audit tbody tr')")
            self.check_clean()


if __name__ == "__main__":
    program()  # a browser that is missing is a failure
    unittest.main(verbosity=2)
