"""A headless Chromium that opens our pages, clicks, and tells what is wrong with them.

It is driven over a pair of pipes (`--remote-debugging-pipe`), which needs no package and no port:

    with Browser() as browser:
        tab = browser.open(page, width=390)
        tab.click("[data-sortable] .sort")
        assert tab.faults() == []
"""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections import deque
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (390, 900, 1400)
"""A phone, a tablet or half a screen, and a desktop."""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE = 60.0  # seconds for one answer

# Every chart on the page must have marks that can be seen: not its grid, its axis or the areas that catch the pointer.
_CHARTS = """((root) => {
  const found = [];
  const seen = (node) => node.getClientRects().length && getComputedStyle(node).visibility !== "hidden";
  for (const chart of root.querySelectorAll('svg[role="img"], svg.plot, svg.bump, svg.modelfig')) {
    if (!seen(chart)) continue;
    const own = chart.getBoundingClientRect();
    const marks = [...chart.querySelectorAll("circle, path, rect, line, polyline, polygon")].filter((mark) => {
      if (mark.matches(".grid, .base, .hit, .cross, .under, .tick")) return false;
      const box = mark.getBoundingClientRect();
      const inside = box.right >= own.left - 8 && box.left <= own.right + 8 && box.bottom >= own.top - 8 && box.top <= own.bottom + 8;
      return seen(mark) && Math.max(box.width, box.height) > 0 && inside;
    });
    if (!marks.length) found.push(`a chart without marks: ${chart.getAttribute("aria-label") || chart.getAttribute("class")}`);
  }
  return found;
})"""

# The page clips what is too wide, so nothing scrolls: whatever ends beyond the window is lost, unless a box around it scrolls.
_OVERFLOW = """((root) => {
  const found = [];
  const walk = (node) => {
    if (node.matches("dialog:not([open]), [hidden], .sr, .skip, script, style")) return;
    const style = getComputedStyle(node);
    if (style.display === "none" || style.visibility === "hidden") return;
    const box = node.getBoundingClientRect();
    const shown = box.width > 0 && box.height > 0 && !node.matches("defs *, .hit");
    if (shown && (box.right > innerWidth + 1 || box.left < -1) && !node.querySelector(":scope > *")) {
      const name = node.outerHTML.slice(0, 90).replace(/\\s+/g, " ");
      found.push(`beyond the window, ${Math.round(box.left)} to ${Math.round(box.right)} of ${innerWidth}: ${name}`);
    }
    if (node !== document.body && /auto|scroll|hidden|clip/.test(style.overflowX) && box.right <= innerWidth + 1) return;
    for (const child of node.children) walk(child);
  };
  walk(root);
  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page scrolls sideways: ${document.documentElement.scrollWidth} > ${innerWidth}`);
  return found.slice(0, 8);
})"""

# Names in charts that lie over each other, by more than the rounding of a pixel.
_COLLISIONS = """((selector) => {
  const found = [];
  for (const chart of document.querySelectorAll(selector)) {
    if (!chart.getClientRects().length) continue;
    const names = [...chart.querySelectorAll("text")].filter((t) => t.textContent.trim() && t.getClientRects().length)
      .map((t) => [t.textContent.trim(), t.getBoundingClientRect()]);
    names.forEach(([one, a], i) => {
      for (const [other, b] of names.slice(i + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3) found.push(`${one} over ${other}`);
      }
    });
  }
  return found;
})"""


class Browser:
    """One Chromium with a profile of its own.

    Args:
        executable: the program; the one on the path by default.
    """

    def __init__(self, executable: str | None = CHROMIUM) -> None:
        if executable is None:
            raise FileNotFoundError("no Chromium on this machine")
        self._profile = tempfile.mkdtemp(prefix="heatcheck-browser-")
        read_by_it, self._out = (_high(fd) for fd in os.pipe())
        self._in, written_by_it = (_high(fd) for fd in os.pipe())
        nothing = os.open(os.devnull, os.O_RDWR)
        self._pid = os.posix_spawn(
            executable,
            [executable, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            os.environ,
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, nothing, fd) for fd in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, read_by_it, 3),  # where Chromium expects the pipes
                (os.POSIX_SPAWN_DUP2, written_by_it, 4),
            ],
        )
        for fd in (nothing, read_by_it, written_by_it):
            os.close(fd)
        self._rest = b""
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict] = {}
        self._tabs: dict[str, Tab] = {}

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self.ask("Browser.close")
        until = time.monotonic() + 5
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                os.kill(self._pid, signal.SIGKILL)
                until += _PATIENCE
            time.sleep(0.02)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, page: Path | str, width: int = 1400, height: int = 900) -> "Tab":
        """A page in a tab of its own, loaded to the end; `page` is a file or an address."""
        tab = Tab(self, page.resolve().as_uri() if isinstance(page, Path) else page)
        self._tabs[tab.session] = tab
        tab.load(width, height)
        return tab

    def ask(self, method: str, session: str | None = None, **parameters: object) -> dict:
        """What Chromium answers to one command of its DevTools protocol."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        until = time.monotonic() + _PATIENCE
        while number not in self._answers:
            self.listen(until, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def listen(self, until: float, waiting_for: str) -> None:
        """Take in what has arrived, after waiting for something."""
        if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
            raise TimeoutError(f"Chromium did not answer to {waiting_for} within {_PATIENCE:.0f} s")
        read = os.read(self._in, 1 << 20)
        if not read:
            raise OSError(f"Chromium has ended while it was asked for {waiting_for}")
        *messages, self._rest = (self._rest + read).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") in self._tabs:
                self._tabs[message["sessionId"]].notice(message["method"], message["params"])

    def forget(self, session: str) -> None:
        """Listen to a tab no longer."""
        del self._tabs[session]


class Tab:
    """One page.

    Args:
        browser: whose tab it is.
        address: of the page.
    """

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser, self.address = browser, address
        self._target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._events: deque[str] = deque()

    def __enter__(self) -> "Tab":
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.forget(self.session)
        self._browser.ask("Target.closeTarget", targetId=self._target)

    def load(self, width: int, height: int) -> None:
        """Load the page in a window of this size, and wait until it has painted."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")
        self.resize(width, height)
        self._ask("Page.navigate", url=self.address)
        until = time.monotonic() + _PATIENCE
        while "Page.loadEventFired" not in self._events:
            self._browser.listen(until, "the page")
        self.settle()

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window another size."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def settle(self) -> None:
        """Wait for the next two frames: scripts have run, and what they changed is laid out."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def run(self, script: str) -> object:
        """The value of a JavaScript expression."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            told = answer["exceptionDetails"]
            raise RuntimeError(told.get("exception", {}).get("description") or told["text"])
        return answer["result"].get("value")

    def count(self, selector: str) -> int:
        """How many elements there are."""
        return int(self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def text(self, selector: str) -> str:
        """What the first such element shows."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str, which: int = 0) -> None:
        """A real click into the middle of an element, after scrolling to it; it must be on top there."""
        at = self._place(selector, which)
        mouse = {"x": at["x"], "y": at["y"], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, **mouse)
        self.settle()

    def hover(self, selector: str, which: int = 0) -> None:
        """Point at an element."""
        at = self._place(selector, which)
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=at["x"], y=at["y"])
        self.settle()

    def faults(self) -> list[str]:
        """What is wrong: errors, requests, charts without marks, and what ends beyond the window; under every tab."""
        found = [*self.run(f"{_CHARTS}(document)"), *self.run(f"{_OVERFLOW}(document.body)")]
        for i in range(self.count('[role="tab"]')):
            panel = f"""((tab) => {{
              tab.click();
              return document.getElementById(tab.getAttribute("aria-controls"));
            }})(document.querySelectorAll('[role="tab"]')[{i}])"""
            found += [*self.run(f"{_CHARTS}({panel})"), *self.run(f"{_OVERFLOW}({panel})")]
        found += [*self.errors, *(f"requested: {address[:120]}" for address in self.requests)]
        return list(dict.fromkeys(found))

    def collisions(self, selector: str = "svg") -> list[str]:
        """Pairs of names within one chart that overlap."""
        return list(self.run(f"{_COLLISIONS}({json.dumps(selector)})"))

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """The window, or the whole page, as a PNG file."""
        made = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))

    def notice(self, event: str, told: dict) -> None:
        """Take down what the page did."""
        self._events.append(event)
        if event == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in told["args"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            address = told["request"]["url"]
            if address != self.address and not address.startswith("data:"):
                self.requests.append(address)

    def _place(self, selector: str, which: int) -> dict:
        at = self.run(
            f"""((node) => {{
              if (!node) return {{ missing: true }};
              node.scrollIntoView({{ block: "center", inline: "nearest", behavior: "instant" }});
              const box = node.getClientRects()[0];
              if (!box) return {{ hidden: true }};
              const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
              const top = document.elementFromPoint(x, y);
              return {{ x, y, covered: top && (node.contains(top) || top.contains(node)) ? "" : String(top && top.outerHTML).slice(0, 120) }};
            }})(document.querySelectorAll({json.dumps(selector)})[{which}])"""
        )
        if "x" not in at or at["covered"]:
            raise LookupError(f"cannot click {selector} ({which}): {at}")
        return at

    def _ask(self, method: str, **parameters: object) -> dict:
        return self._browser.ask(method, self.session, **parameters)


def _high(fd: int) -> int:
    """The same file under a number that is not in the way of 3 and 4; closed in programs that we start."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return moved
