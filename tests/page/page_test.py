"""The page of the admin port, in a real browser.

WEIR_PAGE_TOOLS is a virtual environment of deploy/page_tools.txt, whose Python
runs this file, and Debian's Chromium is there; `./weir test --full` installs
both. WEIR_PAGE_SHOTS names a folder for the pictures of docs/images.
"""

import json
import os
import pathlib
import time
import unittest

import stand_in

TOOLS = os.environ.get("WEIR_PAGE_TOOLS", "")
SHOTS = os.environ.get("WEIR_PAGE_SHOTS", "")
CHROMIUM = "/usr/bin/chromium"
# Without the last four it asks for hosts of its maker's.
FLAGS = (
    *["--no-sandbox", "--disable-gpu", "--no-first-run"],
    *["--disable-quic", "--disable-background-networking"],
    *["--disable-component-update", "--disable-sync"],
)
DEADLINE_MS = 60_000
FIRST_VIEW_MS = 1000
TRIES = 5  # of the first view
FAST = "?poll_ms=20"
FAST_POLLS = 120
HEAP_GROWTH_MAX = 1 << 20  # bytes, of about 10 MiB
NODE_GROWTH_MAX = 50  # of about 2,000

# Keeps what the page must never do: a refused style or script, and a second
# request while one is under way.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
window.most = window.asked = 0;
let open = 0;
const plain = window.fetch;
window.fetch = (...words) => {
  ++window.asked;
  window.most = Math.max(window.most, ++open);
  return plain(...words).finally(() => --open);
};
"""

# All that a keyboard must reach, by an id or its text.
CONTROLS = """
(() => [...document.querySelectorAll(
    "a[href], button, select, input, [tabindex='0']")]
  .filter((e) => e.checkVisibility({visibilityProperty: true}))
  .map((e) => window.nameOf(e)))()
"""
NAME_OF = """
window.nameOf = (e) => e.id || e.getAttribute("aria-label") ||
  (e.closest("[id]")?.id ?? "") + "/" + e.textContent;
"""


def many(n: int) -> bytes:
    """The n-th report of 1,000 workers on 8 ps."""
    return MANY[n % len(MANY)]


MANY = [json.dumps(stand_in.report(1000, 8, n)).encode() for n in range(4)]
NO_CURVE = {key: [] for key in stand_in.curve(2)}


@unittest.skipUnless(TOOLS, "no WEIR_PAGE_TOOLS: ./weir test --full")
class PageTest(unittest.TestCase):
    """One browser, for each test a page and a stand-in of the chief."""

    @classmethod
    def setUpClass(cls):
        """Starts the browser."""
        from playwright.sync_api import sync_playwright

        playwright = sync_playwright().start()
        cls.addClassCleanup(playwright.stop)
        cls.browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS
        )
        cls.addClassCleanup(cls.browser.close)

    def open(self, make_report, curve=None, prefix="", query="", **options):
        """A page that has shown its first report, and its stand-in."""
        server = stand_in.StandIn(make_report, curve, prefix)
        self.addCleanup(server.stop)
        size = {"width": 1440, "height": 900}
        context = self.browser.new_context(**{"viewport": size, **options})
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(DEADLINE_MS)
        page.add_init_script(WATCH + NAME_OF)
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on(
            "console",
            lambda said: (
                said.type in ("error", "warning")
                and page.errors.append(said.text)
            ),
        )
        page.goto(server.url + query)
        self.wait(page, "performance.getEntriesByName('weir-drawn').length > 0")
        return page, server

    def wait(self, page, condition: str):
        """Until a condition of the page is true.

        The page's policy forbids Playwright's own wait_for_function.
        """
        deadline = time.monotonic() + DEADLINE_MS / 1000
        while not page.evaluate(condition):
            self.assertLess(time.monotonic(), deadline, condition)
            page.wait_for_timeout(20)

    def wait_text(self, page, element: str, words: str, there=True):
        """Until an element has these words, or has them no more."""
        deadline = time.monotonic() + DEADLINE_MS / 1000
        while (words in page.text_content(element)) != there:
            self.assertLess(time.monotonic(), deadline, words)
            page.wait_for_timeout(20)

    def assert_quiet(self, page):
        """No error, nothing refused, never two requests at once."""
        self.assertEqual(page.errors, [])
        self.assertEqual(page.evaluate("window.violations"), [])
        self.assertEqual(page.evaluate("window.most"), 1)

    def wait_polls(self, page, server, polls: int):
        """Until the stand-in has answered so many more reports."""
        end = server.polls + polls
        deadline = time.monotonic() + DEADLINE_MS / 1000 + polls
        while server.polls < end:
            self.assertLess(time.monotonic(), deadline)
            page.wait_for_timeout(20)

    def test_a_thousand_workers_are_there_within_a_second(self):
        """The first paint, and the first report; others may disturb a try."""
        for _ in range(TRIES):
            page, _ = self.open(many)
            times = page.evaluate("""[
              performance.getEntriesByName("first-contentful-paint")[0],
              performance.getEntriesByName("weir-drawn")[0],
            ].map((entry) => entry.startTime)""")
            print("first paint, first report, ms:", times, flush=True)
            self.assert_quiet(page)
            if max(times) < FIRST_VIEW_MS:
                return
        self.fail(f"none of {TRIES} was there within {FIRST_VIEW_MS} ms")

    def test_it_shows_what_the_report_says(self):
        """The sentence on top, each worker, each shard, the curves as text."""
        page, server = self.open(lambda n: stand_in.report(3, 2, n))
        self.wait_polls(page, server, 2)
        cause = server.make_report(0)["cause"]
        self.assertEqual(page.inner_text("#sentence"), cause["sentence"])
        self.assertIn(cause["advice"], page.inner_text("#advice"))
        self.assertIn(cause["sentence"], page.text_content("#announcer"))
        self.assertEqual(
            page.get_attribute("#announcer", "aria-live"), "polite"
        )
        rows = page.locator("#worker-table tbody tr")
        self.assertEqual(rows.count(), 3)
        self.assertIn("data 62", rows.nth(1).inner_text())
        self.assertIn("71", rows.nth(1).inner_text())
        self.assertEqual(page.locator("#shard-table tbody tr").count(), 2)
        self.assertIn(
            "4.10", page.inner_text("#shard-table tbody tr:last-child")
        )
        newest = f"{server.curve['loss'][-1]:.4g}"
        page.wait_for_selector(".chart canvas")
        label = page.get_attribute("#loss-chart", "aria-label")
        self.assertIn(newest, label)
        page.click("#log")
        self.assertEqual(page.get_attribute("#log", "aria-pressed"), "true")
        first_event = page.inner_text("#event-table tbody tr:first-child")
        self.assertIn("worker 29", first_event)
        self.assert_quiet(page)

    def test_a_keyboard_reaches_and_uses_every_control(self):
        """By Tab, each with a visible focus."""
        for workers in 3, 1000:
            page, _ = self.open(
                many if workers == 1000 else lambda n: stand_in.report(3, 2, n)
            )
            wanted = page.evaluate(CONTROLS)
            self.assertGreater(len(wanted), 20)
            reached = []
            for _ in range(len(wanted)):
                page.keyboard.press("Tab")
                name, outline = page.evaluate("""(() => {
                  const e = document.activeElement;
                  const {outlineStyle, outlineWidth} = getComputedStyle(e);
                  const seen = outlineStyle !== "none";
                  const width = seen ? parseFloat(outlineWidth) : 0;
                  return [window.nameOf(e), width];
                })()""")
                reached.append(name)
                self.assertGreaterEqual(outline, 2, name)
            self.assertEqual(reached, wanted)
        page.focus("#worker-grid")
        before = page.get_attribute("#worker-grid", "aria-valuetext")
        page.keyboard.press("ArrowRight")
        after = page.get_attribute("#worker-grid", "aria-valuetext")
        self.assertIn("worker 417", before)
        self.assertIn("worker 418", after)
        page.focus("#worker-table th:nth-child(1) button")
        page.keyboard.press("Enter")
        row = page.inner_text("#worker-table tbody tr:first-child")
        self.assertEqual(row.split()[0], "0")
        page.fill("#worker-find", "node-010")
        chosen = page.inner_text("#worker-one tbody tr")
        self.assertEqual(chosen.split()[:2], ["80", "node-010.cluster"])
        self.assert_quiet(page)

    def test_axe_finds_nothing(self):
        """In light and dark, of every kind of report."""
        from axe_playwright_python.sync_playwright import Axe

        kinds = {
            "many": (many, None),
            "few": (lambda n: stand_in.report(3, 2, n), None),
            "failed": (lambda n: stand_in.failed_report(), None),
            "waiting": (lambda n: stand_in.waiting_report(), NO_CURVE),
        }
        for name, (make_report, curve) in kinds.items():
            for scheme in "light", "dark":
                page, _ = self.open(make_report, curve, color_scheme=scheme)
                if curve is None:
                    page.wait_for_selector(".chart canvas")
                self.assert_quiet(page)
                found = Axe().run(page)
                with self.subTest(name, scheme=scheme):
                    self.assertEqual(
                        found.violations_count, 0, found.generate_report()
                    )
                if SHOTS and name in ("few", "many"):
                    page.set_viewport_size({"width": 1280, "height": 800})
                    page.wait_for_timeout(300)  # charts of the new width
                    path = pathlib.Path(SHOTS, f"page_{name}_{scheme}.png")
                    page.screenshot(path=path)

    def test_it_outlives_a_chief_that_goes_and_comes(self):
        """It says since when, keeps the last view, and goes on by itself."""
        page, server = self.open(lambda n: stand_in.report(3, 2, n), query=FAST)
        server.stop()
        page.wait_for_selector("#trouble:not([hidden])")
        said = page.inner_text("#trouble")
        self.assertRegex(said, r"The chief does not answer since \d+.s\.")
        self.assertEqual(page.locator("#worker-table tbody tr").count(), 3)
        self.assertEqual(page.inner_text("#job"), "digits")
        asked = page.evaluate("window.asked")
        page.wait_for_timeout(1500)  # of ever longer pauses
        asked = page.evaluate("window.asked") - asked
        self.assertLess(asked, 15)
        server.start()
        page.wait_for_selector("#trouble", state="hidden")
        self.wait_polls(page, server, 3)
        server.status = 401
        page.wait_for_selector("#trouble:not([hidden])")
        self.assertIn("weir page", page.inner_text("#trouble"))
        server.status = 503
        self.wait_text(page, "#trouble", "503")
        server.status, make_report = 200, server.make_report
        server.make_report = lambda n: b"{"
        self.wait_text(page, "#trouble", "JSON")
        server.make_report = make_report
        page.wait_for_selector("#trouble", state="hidden")
        self.assertEqual(page.evaluate("window.most"), 1)

    def test_texts_of_peers_are_only_texts(self):
        """HTML in every name and message stays letters."""
        for workers in 3, 50:
            page, _ = self.open(
                lambda n, workers=workers: stand_in.hostile_report(workers)
            )
            self.assertIn("<b>bold</b>", page.inner_text("#sentence"))
            self.assertIn("<b>bold</b>", page.inner_text("#worker-table"))
            self.assertIn("<b>bold</b>", page.inner_text("#event-table"))
            self.assertEqual(page.locator("b, [onerror]").count(), 0)
            self.assertNotEqual(page.title(), "taken")
            self.assert_quiet(page)

    def test_reports_of_bad_form_do_no_harm(self):
        """Fields that are absent, null, of another kind, or no number."""
        odd = {
            "phase": "training",
            "loss": "NaN",
            "step": "Infinity",
            "worker": [{}, {"slot": 1, "shard_wait_share": ["NaN", None]}],
            "shard": [{"index": 0}],
            "cause": None,
            "event": [{}],
            "layer": "none",
        }
        curve = {"step": [1, 2], "loss": [None, "NaN"]}
        for report in odd, {}, []:
            page, server = self.open(
                lambda n, report=report: report, curve, query=FAST
            )
            self.wait_polls(page, server, 3)
            self.assertTrue(page.is_hidden("#trouble"))
            self.assert_quiet(page)

    def test_an_update_leaves_focus_and_selection_alone(self):
        """While text is selected the view stands still, then it goes on."""
        page, server = self.open(lambda n: stand_in.report(3, 2, n), query=FAST)
        page.focus("#worker-table th button >> nth=1")
        page.evaluate(
            "getSelection().selectAllChildren(document.getElementById('steps'))"
        )
        self.wait_polls(page, server, 2)
        chosen = page.evaluate("getSelection().toString()")
        self.assertTrue(chosen.startswith("step 1,2"))
        self.wait_polls(page, server, 10)
        self.assertEqual(page.evaluate("getSelection().toString()"), chosen)
        page.evaluate("getSelection().empty()")
        self.wait_text(page, "#steps", chosen, there=False)
        self.wait_polls(page, server, 5)
        self.assertEqual(
            page.evaluate("document.activeElement.textContent"), "Host"
        )
        page.click("#pause")
        shown = page.inner_text("#steps")
        polls = server.polls
        page.wait_for_timeout(300)
        self.assertLessEqual(server.polls, polls + 1)
        page.click("#pause")
        self.wait_text(page, "#steps", shown, there=False)
        self.assert_quiet(page)

    def test_memory_does_not_grow(self):
        """Over many polls of a thousand workers."""
        page, server = self.open(many, query=FAST)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")

        def used():
            devtools.send("HeapProfiler.collectGarbage")
            found = devtools.send("Performance.getMetrics")["metrics"]
            values = {one["name"]: one["value"] for one in found}
            return values["JSHeapUsedSize"], values["Nodes"]

        self.wait_polls(page, server, 30)
        heap, nodes = used()
        self.wait_polls(page, server, FAST_POLLS)
        heap_then, nodes_then = used()
        print("heap:", heap, heap_then, "nodes:", nodes, nodes_then, flush=True)
        self.assertLess(heap_then - heap, HEAP_GROWTH_MAX)
        self.assertLess(nodes_then - nodes, NODE_GROWTH_MAX)
        self.assert_quiet(page)

    def test_it_fits_a_telephone_and_a_prefix(self):
        """All addresses are relative, and only tables scroll sideways."""
        page, server = self.open(
            many, prefix="/proxy/a", viewport={"width": 360, "height": 700}
        )
        page.wait_for_selector(".chart canvas")
        self.assertLessEqual(
            page.evaluate("document.documentElement.scrollWidth"), 360
        )
        known = set(server.files) | {"/report", "/curve"}
        asked = {path.removeprefix("/proxy/a") for path in server.asked}
        self.assertLessEqual(asked, known)
        self.assertLessEqual(set(server.files), asked)
        self.assert_quiet(page)


if __name__ == "__main__":
    unittest.main()
