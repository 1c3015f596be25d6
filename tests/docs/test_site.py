"""The site of `make docs`: every public name, nothing from elsewhere, and a browser that shows it."""

import base64
import contextlib
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from html import unescape
from pathlib import Path

import pytest
from public_names import public_names

import exporter
import loader
import serving
import training
import workflow

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver, of the system's packages"
)
PAGES = [
    "index",
    "guide/workflow",
    "guide/overview",
    "guide/operations",
    "guide/clients",
    "guide/migration",
    "reference/workflow.ops/Categorify",
    "reference/loader/KerasSequenceLoader",
    "reference/exporter/index",
    "reference/serving/index",
    "benchmarks",
    "scale",
    "comparison",
    "reliability",
    "glossary",
    "decisions/0019-what-libraries-do",
    "changelog",
]
TUTORIALS = [f"tutorials/{path.stem}" for path in sorted((ROOT / "docs/tutorials").glob("*.ipynb"))]
# Pictures of the pages as they were last opened, for a person to look at.
PICTURES = ROOT / "build" / "screenshots"
# What a browser fetches to show a page: no links that a reader may follow.
FETCHED = re.compile(r"""<(?:script|img|iframe|source)[^>]*?\ssrc=["']?([^"'\s>]+)|<link[^>]*?\shref=["']?([^"'\s>]+)""")  # fmt: skip # noqa: E501
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""")
ELSEWHERE = re.compile(r"(?:https?:)?//")


def build(root: Path, site: Path, tutorials: str = "source") -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout as `make docs` does, with tutorials from their "source" or "executed"."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "TUTORIALS": tutorials},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def shown_text(page: Path) -> str:
    """A page as its reader sees it, in one line."""
    text = re.sub(r"<[^>]+>", "", page.read_text().partition("<article")[2])
    return " ".join(unescape(text).split())


@pytest.mark.parametrize("module", [workflow, loader, training, exporter, serving])
def test_every_public_name_has_a_page_that_opens_with_its_docstring(site, module):
    names = list(public_names(module))
    assert names
    for path, name, value in names:
        text = shown_text(site / "reference" / path / f"{name}.html")
        opening = value.__doc__.split("\n\n")[0].replace("`", "")
        assert " ".join(opening.split()) in text.replace("`", ""), f"{path}.{name}"


def test_settings_examples_and_methods_are_shown(site):
    text = shown_text(site / "reference/workflow.ops/Categorify.html")
    # A paragraph that griffe would cut after its first line.
    assert "Ids: 0 is padding, 1 null, from 2 on num_buckets ids (one by default) for" in text
    assert ">>> workflow.transform" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "leave out of the vocabulary values that occur less often" in text
    assert "__rrshift__" not in text
    assert "get_state" in shown_text(site / "reference/loader/KerasSequenceLoader.html")


def test_no_page_fetches_anything_from_elsewhere(site):
    fetched = [
        (file.name, address)
        for file in site.rglob("*.html")
        for found in FETCHED.findall(file.read_text())
        for address in found
    ]
    fetched += [
        (file.name, address)
        for kind in ("*.css", "*.html")
        for file in site.rglob(kind)
        for address in IN_STYLES.findall(file.read_text())
    ]
    assert len(fetched) > 1000
    assert not [(name, address) for name, address in fetched if ELSEWHERE.match(address)]


@pytest.mark.long
def test_a_broken_link_and_an_undocumented_name_fail_by_name(tmp_path):
    for name in ("docs", "workflow", "loader", "training", "exporter", "serving", "triton_models"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("docker", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for file in [ROOT / "mkdocs.yml", ROOT / "LICENSE", *ROOT.glob("*.md")]:
        shutil.copy(file, tmp_path)
    guide = tmp_path / "docs/guide/loader.md"
    guide.write_text(guide.read_text() + "\n[lost](lost.md) [nor here](workflow.md#nor-here)\n")
    clip = tmp_path / "workflow/ops/clip.py"
    text = clip.read_text()
    _, _, rest = text.partition("class Clip(Operator):\n")
    clip.write_text(text.replace(rest, rest.partition('"""')[2].partition('"""')[2]))
    done = build(tmp_path, tmp_path / "site")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "'lost.md'" in said
    assert "nor-here" in said
    assert "Received: none of workflow.ops.Clip." in said


# Elements of the text that reach beyond the page, and that no box around them scrolls.
BEYOND = """
const scrolls = e => e && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
return [...document.querySelectorAll('article *')]
  .filter(e => e.getBoundingClientRect().right > arguments[0] + 1 && !scrolls(e))
  .map(e => e.outerHTML.slice(0, 200));
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    """The address at which the files of a folder are served."""
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def address(site):
    with served(site) as address:
        yield address


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The address of a site whose tutorials have the outputs of their cells."""
    folder = tmp_path_factory.mktemp("executed")
    done = build(ROOT, folder, "executed")
    assert done.returncode == 0, done.stdout + done.stderr
    with served(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # A name other than this machine's does not resolve: what a page needs of it is an error.
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield browser
    browser.quit()


def resize(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait_until(browser, condition):
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, 30, poll_frequency=0.05).until(condition)


def set_colours(browser, colours, expected):
    """Ask for the colours that a reader's system would, and wait for such a background."""
    colour = {"name": "prefers-color-scheme", "value": colours}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [colour]})
    style = "return getComputedStyle(document.body).backgroundColor"
    wait_until(
        browser, lambda page: expected(int(re.findall(r"\d+", page.execute_script(style))[0]))
    )


def picture(browser, file, width):
    """Keep the whole page as a picture."""
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 12_000), "scale": 1}
    taken = {"captureBeyondViewport": True, "clip": clip}
    made = browser.execute_cdp_cmd("Page.captureScreenshot", taken)["data"]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(base64.b64decode(made))


def look_at(browser, address, page):
    """Open a page narrow and wide, dark and light; keep pictures, and refuse errors and overflow."""
    for width in (390, 1280):
        resize(browser, width)
        browser.get(f"{address}/{page}.html")
        for colours, expected in (
            ("dark", lambda red: red < 100),
            ("light", lambda red: red > 200),
        ):
            set_colours(browser, colours, expected)
            picture(browser, PICTURES / f"{page.replace('/', '-')}-{width}-{colours}.png", width)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, colours
            assert not browser.execute_script(BEYOND, width), colours
        errors = [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
        assert not errors


@needs_browser
@pytest.mark.parametrize(
    "page", [*PAGES[:1], *(pytest.param(page, marks=pytest.mark.long) for page in PAGES[1:])]
)
def test_a_browser_shows_a_page_without_an_error_or_overflow(browser, address, page):
    look_at(browser, address, page)


@pytest.mark.long
@needs_browser
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_browser_shows_tutorials_with_their_outputs(browser, executed, page):
    look_at(browser, executed, page)
    assert browser.execute_script("return document.querySelectorAll('.output').length") > 3


@needs_browser
@pytest.mark.parametrize("scheme", ["http", "file"])
def test_search_finds_an_operator_with_and_without_a_server(browser, site, address, scheme):
    from selenium.webdriver.common.by import By

    start = address if scheme == "http" else site.as_uri()
    resize(browser, 1280)
    browser.get(f"{start}/index.html")
    box = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    browser.execute_script("arguments[0].focus()", box)
    box.send_keys("Categorify")
    shown = (By.CSS_SELECTOR, "a.md-search-result__link")
    links = wait_until(browser, lambda page: page.find_elements(*shown))
    found = [link.get_attribute("href").partition("?")[0] for link in links]
    assert any(page.endswith("/reference/workflow.ops/Categorify.html") for page in found), found
