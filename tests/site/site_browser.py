"""Chromium, a plain static server, and the checks that the site tests apply to a page.

Every check returns a list of faults, empty when all is well, so that it can be shown to fail:
test_checks.py runs each of them on a page that is wrong.
"""

import functools
import os
import re
import shutil
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update", "--no-first-run", "--disable-dev-shm-usage"]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


# --- the browser --------------------------------------------------------------------------------


def find_chromium(environ=os.environ, which=shutil.which, exists=os.path.exists):
    """The path of a Chromium, or None; ``CHROMIUM`` in the environment goes first."""
    wanted = environ.get("CHROMIUM")
    if wanted:
        return which(wanted) or (wanted if exists(wanted) else None)
    found = next(filter(None, map(which, NAMES)), None)
    return found or next(filter(exists, PLACES), None)


def decide(chromium, environ=os.environ):
    """What to do with the browser tests: ``(word, why)``, word in run, skip, fail."""
    if chromium:
        return "run", chromium
    why = "no Chromium found: install chromium (or set CHROMIUM to its path) for the site tests"
    return ("fail" if environ.get("CI", "").lower() == "true" else "skip"), why


@contextmanager
def chromium_or_skip():
    """A running Chromium; skips the test without one, fails it under CI=true."""
    word, why = decide(find_chromium())
    if word != "run":
        getattr(pytest, word)(why)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=why, args=FLAGS)
        yield browser
        browser.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def served(folder):
    """The address at which a plain static server shows ``folder``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Visit:
    """One page in a context of its own, with a record of all that went wrong while it loaded.

    No request leaves the machine: each to another host is aborted and noted in ``external``.
    """

    def __init__(self, browser, address, viewport=DESKTOP, settle=True, **options):
        self.errors, self.failed, self.external = [], [], []
        self.context = browser.new_context(viewport=viewport, **options)
        self.context.route("**/*", self._route)
        self.page = self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("requestfailed", self._failure)
        self.page.on("response", self._response)
        self.page.goto(address, wait_until="load")
        if settle:
            self.page.evaluate("() => window.MathJax && MathJax.startup && MathJax.startup.promise")
            self.page.evaluate("() => document.fonts.ready.then(() => true)")

    def _console(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def _failure(self, request):
        if is_local(request.url):
            self.failed.append(f"{request.url}: {request.failure}")

    def _response(self, response):
        if response.status >= 400:
            self.failed.append(f"{response.url}: {response.status}")

    def _route(self, route):
        if is_local(route.request.url):
            route.continue_()
        else:
            self.external.append(route.request.url)
            route.abort()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.context.close()


def is_local(url):
    """Whether a request stays on this machine."""
    return re.match(r"(http://127\.0\.0\.1[:/]|file://|data:|blob:|about:)", url) is not None


# --- checks of a page in the browser --------------------------------------------------------------

OVERFLOW = """() => {
  const faults = [], width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) { return faults; }
  faults.push("page is " + document.documentElement.scrollWidth + " px wide, screen " + width);
  document.querySelectorAll("body *").forEach(e => {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > width + 1 && faults.length < 6) {
      faults.push(e.tagName + "." + e.className + " ends at " + Math.round(box.right)); }
  });
  return faults;
}"""

RAW_MATHS = r"""() => {
  const skip = "code, pre, script, style, mjx-container, textarea, .eb-pe", faults = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (node.parentElement.closest(skip)) { continue; }
    const found = node.textContent.match(/\$[^$\n]+\$|\$\$|\\\(|\\\[|\\begin\{/);
    if (found) { faults.push("raw maths: " + node.textContent.trim().slice(0, 80)); }
  }
  document.querySelectorAll(".math").forEach(e => {
    if (!e.querySelector("mjx-container")) { faults.push("not set: " + e.textContent); } });
  document.querySelectorAll("mjx-merror, [data-mjx-error]").forEach(e => {
    faults.push("MathJax: " + (e.dataset.mjxError || e.textContent)); });
  return faults;
}"""

ALT = """() => Array.from(document.querySelectorAll("main img, article img")).filter(e => {
  const alt = (e.getAttribute("alt") || "").trim();
  return alt.length < 10 || /_images\\/|\\.(png|svg|jpe?g)$/.test(alt);
}).map(e => "no useful alt text: " + e.outerHTML.slice(0, 160))"""

FIGURES = """() => Array.from(document.querySelectorAll(".cell_output img")).flatMap(e => {
  const style = getComputedStyle(e), name = e.src.slice(-40), faults = [];
  if (style.filter !== "none") { faults.push(name + ": filter " + style.filter); }
  const canvas = document.createElement("canvas");
  canvas.width = e.naturalWidth; canvas.height = e.naturalHeight;
  const pen = canvas.getContext("2d");
  pen.drawImage(e, 0, 0);
  const corner = Array.from(pen.getImageData(0, 0, 1, 1).data);
  if (corner.join() !== "255,255,255,255" && style.backgroundColor !== "rgb(255, 255, 255)") {
    faults.push(name + ": ground " + style.backgroundColor + ", pixel " + corner); }
  return faults;
})"""


def overflow(page):
    """What makes the page wider than the screen."""
    return page.evaluate(OVERFLOW)


def raw_maths(page):
    """Formulas that are still TeX, or that MathJax could not read."""
    return page.evaluate(RAW_MATHS)


def missing_alt(page):
    """Pictures without a description (axe accepts a file name, this does not)."""
    return page.evaluate(ALT)


def dark_figures(page):
    """Figures whose colours a filter changes, or that have no white ground."""
    return page.evaluate(FIGURES)


def set_theme(page, theme):
    """Show the page in ``light`` or ``dark``, at once."""
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; }")
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)


def axe_faults(page, rules=(), within=None):
    """Serious and critical faults of accessibility, by all rules or by those named.

    ``within`` is a selector of the parts to look at, instead of the whole page.

    The inside of set formulas is MathJax's and left out: it is most of a page's elements.
    """
    options = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    where = {"exclude": [["mjx-container"]]} | ({"include": [[within]]} if within else {})
    found = Axe().run(page, where, options).response["violations"]
    return [
        f"{fault['id']} ({fault['impact']}): {node['target']} {node['html'][:120]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"][:3]
    ]


# --- checks of the files

LOADING_TAG = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?"
    r"\b(?:src|srcset|data)\s*=\s*[\"']?\s*((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
LOADING_LINK = re.compile(r"<link\b[^>]*>", re.IGNORECASE)
LINK_REL = re.compile(
    r"\brel\s*=\s*[\"']?[^\"'>]*(?:stylesheet|icon|preload|prefetch|preconnect|manifest)",
    re.IGNORECASE,
)
LINK_HREF = re.compile(r"\bhref\s*=\s*[\"']?\s*((?:https?:)?//[^\"'\s>]+)", re.IGNORECASE)
CSS_LOAD = re.compile(
    r"(?:@import\s+(?:url\()?|url\()\s*[\"']?\s*((?:https?:)?//[^\"')\s;]+)", re.IGNORECASE
)


def external_in_html(text):
    """Addresses on other hosts that a browser would load for this page."""
    found = LOADING_TAG.findall(text)
    for link in LOADING_LINK.findall(text):
        if LINK_REL.search(link):
            found += LINK_HREF.findall(link)
    return found + external_in_css(" ".join(re.findall(r"(?s)<style[^>]*>(.*?)</style>", text)))


def external_in_css(text):
    """Addresses on other hosts in ``@import`` and ``url()``, comments apart."""
    return CSS_LOAD.findall(re.sub(r"(?s)/\*.*?\*/", "", text))


def external_loads(site):
    """``file: address`` for everything the built site would load from another host."""
    faults = []
    for path in sorted(Path(site).rglob("*")):
        check = {".html": external_in_html, ".css": external_in_css}.get(path.suffix)
        if check:
            found = check(path.read_text("utf-8"))
            faults += [f"{path.relative_to(site)}: {address}" for address in found]
    return faults
