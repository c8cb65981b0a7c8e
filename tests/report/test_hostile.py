"""Class names, file names, tokens and errors are somebody else's: none of them may become part of the page."""

import json
import re
from html.parser import HTMLParser

import pytest

from heatcheck.report import render
from heatcheck.report.wording import plain

MARK = "document.documentElement.dataset.pwned=1"
PAYLOADS = [
    f"</script><script>{MARK}</script>",
    f"<script>{MARK}</script>",
    f"</SCRIPT ><ScRiPt>{MARK}</sCrIpT>",
    f"<img src=x onerror={MARK}>",
    f'"><img src=x onerror="{MARK}">',
    f"'><svg onload='{MARK}'>",
    f'" autofocus onfocus="{MARK}" x="',
    f"' onmouseover='{MARK}' x='",
    f"<!--<script>{MARK}//-->",
    f"--><script>{MARK}</script>",
    f"]]><script>{MARK}</script>",
    f"</style><script>{MARK}</script>",
    f"</title><script>{MARK}</script>",
    f"</textarea></select></option><script>{MARK}</script>",
    f"<iframe srcdoc='<script>parent.{MARK}</script>'></iframe>",
    f"<a href='javascript:{MARK}'>x</a>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<base href=https://evil.example/>",
    "<style>*{display:none}</style>",
    "<form action=https://evil.example><input name=a>",
    f"<svg><animate onbegin={MARK} attributeName=x dur=1s>",
    f"<math><mtext></form><form><mglyph><style></math><img src onerror={MARK}>",
    "{{7*7}}{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{{ view.data }}${7*7}#{7*7}<%= 7*7 %>",
    f"\\u003cscript\\u003e{MARK}",
    f"&lt;script&gt;{MARK}&lt;/script&gt;&#60;script&#62;",
    "\u2028\u2029\u0000\u0008\u001b[31mred\u007f",
    "cat\u202egnp.exe\u2066\u2069",
    "lone \ud800 surrogate",
    f"<details open ontoggle={MARK}>",
    f"<video><source onerror={MARK}></video>",
    f"<body onload={MARK}>",
    f"<input onfocus={MARK} autofocus>",
    f"<object data=javascript:{MARK}>",
    f"<embed src=javascript:{MARK}>",
    f"<x contenteditable onblur={MARK} tabindex=1>",
    f"<svg><script>{MARK}</script></svg>",
    f"<svg><use href='data:image/svg+xml,<svg onload={MARK}>'>",
    f"<noscript><p title='</noscript><img src=x onerror={MARK}>'>",
    f"<template><script>{MARK}</script></template>",
    f"<dialog open onclose={MARK}>",
    f"</dialog></main></body></html><script>{MARK}</script>",
    f"</svg></figure><script>{MARK}</script>",
    f"</bdi></code></button><script>{MARK}</script>",
    f"<script src=//evil.example/x.js></script>{MARK}",
    "<img srcset='https://evil.example/x.png 1x'>",
    "<picture><source srcset=//evil.example/x.webp></picture>",
    "url(https://evil.example/x.png)",
    "data:text/html,<script>alert(1)</script>",
    f"%3Cscript%3E{MARK}%3C/script%3E",
    f"\\x3cscript\\x3e{MARK}",
    f"+ADw-script+AD4-{MARK}+ADw-/script+AD4-",
    "\uff1cscript\uff1e\u00a0\u200b\u2060zero width",
    "e\u0301\u0301\u0301\u0301\u0301 combining \U0001f468\u200d\U0001f4bb",
    "__proto__",
    "constructor",
    "NaN",
    "`${alert(1)}`",
    "[bold red]rich[/] \\[x]",
    "a" * 5000,
    "",
]
IDS = [f"p{i}" for i in range(len(PAYLOADS))]


class Shape(HTMLParser):
    """The kinds of elements a page consists of, and its scripts."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.kinds, self.scripts, self.text, self._inside, self.comments = set(), [], [], "", 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.kinds.add((tag, frozenset(name for name, _ in attrs)))
        self._inside = tag
        for name, value in attrs:
            if name in ("src", "href"):
                assert value.startswith(("#", "data:image/webp;base64,")), value

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_comment(self, data):
        self.comments += 1

    def handle_data(self, data):
        (self.scripts if self._inside == "script" else self.text).append(data)


def run_with(fake, payload, text):
    numbered = {}
    storable = payload.encode(errors="replace").decode()  # tables hold no lone surrogates; JSON does

    def word(kind, name):
        if kind in ("method", "model", "metric", "sample"):  # these are keys and must stay distinct
            return f"{storable} {numbered.setdefault((kind, name), len(numbered))}"
        return storable if kind in ("data", "class", "status") else payload

    few = {"grad_cam": (0.8, 4, 1, 1), "rise(masks=9)": (0.5, 8, 9, 0), "lime": (0.4, 4, 9, 0)}
    return fake(methods=few, metrics=("sds", "morf"), n=2, side=12, shown=1, text=text, word=word)


@pytest.fixture(scope="module")
def benign(fake):
    return {text: Shape(render(run_with(fake, "name(key=1)", text))) for text in (False, True)}


# A text run has every field a picture run has, and tokens.
@pytest.mark.parametrize(
    ("payload", "text"),
    [pytest.param(p, True, id=f"{i}-text") for i, p in zip(IDS, PAYLOADS, strict=True)]
    + [pytest.param(p, False, id=f"{i}-image") for i, p in zip(IDS[::6], PAYLOADS[::6], strict=True)],
)
def test_a_hostile_string_stays_a_string(fake, benign, payload, text):
    html = render(run_with(fake, payload, text))
    found = Shape(html)
    # A string can neither make an element of a new kind nor add an attribute.
    assert found.kinds <= benign[text].kinds
    assert found.comments == 0
    data, script = found.scripts
    assert script == benign[text].scripts[1]
    assert not set("<>&\u2028\u2029") & set(data)
    json.loads(data)
    if re.search(r"[<>\"']", payload):
        assert payload not in html
    assert plain(payload).strip() in "".join(found.text)  # and can still be read
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html)
    html.encode("utf-8")


def test_unseen_characters_are_spelled_out():
    assert plain("cat\u202egnp.exe\x1b") == "cat\\u202egnp.exe\\u001b"
    assert plain("naïve 猫 👩‍🚀 שלום\n\t") == "naïve 猫 👩‍🚀 שלום\n\t"


PWNED = "document.documentElement.dataset.pwned"


def test_the_marker_is_found_where_a_page_does_not_escape(browser, tmp_path):
    page = tmp_path / "raw.html"
    page.write_text(f"<html><body>{PAYLOADS[0]}</body></html>")
    with browser.open(page) as tab:
        assert tab.run(PWNED) == "1"


@pytest.mark.slow
@pytest.mark.parametrize("text", [False, True], ids=["image", "text"])
def test_no_payload_runs_in_a_browser_and_the_page_works(browser, fake, tmp_path, text):
    everything = [p for p in PAYLOADS if p and len(p) < 1000]
    for part in range(0, len(everything), 8):
        page = tmp_path / f"{part}.html"
        page.write_text(render(run_with(fake, " ".join(everything[part : part + 8]), text)), encoding="utf-8")
        with browser.open(page) as tab:
            # What our script draws: samples, a dialog and the tooltip.
            assert tab.text(".drill h4")
            tab.click("[data-cell]:not(:disabled)")
            tab.hover("dialog .reading .line" if text else "dialog .one")
            tab.click("#dialog-close")
            tab.hover(".cost .dot")
            assert tab.text("#tip")
            assert tab.run(PWNED) is None
            assert tab.count("script") == 2 and tab.count("iframe, base, object, form, meta[http-equiv=refresh]") == 0
            assert tab.errors == [] and tab.requests == []
