"""The app as people meet it: started by its command, in Chromium, every page, a link, uploads, two widths."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import closing

import pytest

from tests.app.running import cli

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
PAGES = ("plan", "memory", "time", "network", "fits", "compare", "accuracy")
PROBES = re.compile(r"/_stcore/(health|host-config)$")
"""What Streamlit asks below a page's own address before it finds its server: a 404 of these is its way."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium on PATH: apt-get install chromium"),
]


def free_port():
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The app, started as people start it, from a folder that is not the project's."""
    port = free_port()
    command = [sys.executable, "-m", "planner", "app", "--no-browser", "--port", str(port)]
    where = tmp_path_factory.mktemp("elsewhere")
    log = where / "log.txt"
    with log.open("w") as file, subprocess.Popen(command, cwd=where, stdout=file, stderr=file) as server:
        url = f"http://localhost:{port}"
        try:
            wait_for(f"{url}/_stcore/health", server, log)
            yield url
        finally:
            server.kill()  # asked politely, it waits for the windows that are still open


def wait_for(url, server, log):
    for _ in range(120):
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the app did not start")


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """A window on the app, with what went wrong in it."""

    def __init__(self, chromium, address, *, width=1280, dark=False):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self.page, self.address, self.wrong = context.new_page(), address, []
        self.page.on("console", self.heard)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("response", self.answered)
        self.page.on("request", self.asked)

    def heard(self, message):
        if message.type == "error" and "404" not in message.text:
            self.wrong.append(message.text)

    def answered(self, response):
        if response.status >= 400 and not PROBES.search(response.url):
            self.wrong.append(f"{response.status} {response.url}")

    def asked(self, request):
        if not request.url.startswith((self.address, self.address.replace("http", "ws"), "data:", "blob:")):
            self.wrong.append(f"asks elsewhere: {request.url}")

    def open(self, path=""):
        self.page.goto(f"{self.address}/{path}")
        self.settle()
        return self

    def settle(self):
        """Wait until there is a command line on the page, and nothing runs any more."""
        self.page.wait_for_timeout(500)
        self.page.wait_for_selector('[data-testid="stCode"]', state="attached", timeout=60_000)
        self.page.wait_for_function(
            "document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'"
            " && !document.querySelector('[data-stale=true]')",
            timeout=90_000,
        )
        self.page.wait_for_timeout(400)

    def check(self):
        """Nothing failed, and the page is as wide as its window."""
        assert self.page.locator('[data-testid="stException"]').count() == 0
        assert self.page.get_by_text("Internal error").count() == 0
        assert self.wrong == []
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    def command(self):
        return next(
            text for text in self.page.locator('[data-testid="stCode"] code').all_text_contents() if "planner" in text
        )

    def metric(self, label):
        box = self.page.locator('[data-testid="stMetric"]', has_text=label).first
        return box.locator('[data-testid="stMetricValue"]').inner_text()

    def text(self):
        return self.page.locator('[data-testid="stMain"]').inner_text()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_without_an_error_at_two_widths(chromium, address, name, width):
    visit = Visit(chromium, address, width=width, dark=width == 390).open("" if name == "plan" else name)
    visit.check()
    charts = visit.page.locator('[data-testid="stVegaLiteChart"]')
    assert charts.count() >= 1
    assert all(
        box["width"] > 150 and box["x"] + box["width"] <= width for box in (c.bounding_box() for c in charts.all())
    )


def test_controls_give_what_the_command_line_gives_and_the_link_reproduces_it(chromium, address):
    visit = Visit(chromium, address).open()
    visit.page.get_by_role("combobox", name="Model").click()
    visit.page.keyboard.type("llama-3.2-1b")
    visit.page.keyboard.press("Enter")
    visit.settle()
    visit.page.get_by_role("spinbutton", name="Number of nodes").fill("1")
    visit.page.keyboard.press("Enter")
    visit.settle()
    visit.check()
    assert "model=llama-3.2-1b" in visit.page.url
    best = cli(visit.command())["plans"][0]
    assert visit.metric("Tokens/s") == f"{best['tokens_per_s']:,.0f}"
    assert visit.metric("MFU") == f"{100 * best['mfu']:.1f} %"
    again = Visit(chromium, address).open(visit.page.url.split("/", 3)[3])
    assert again.command() == visit.command()
    assert again.metric("Tokens/s") == visit.metric("Tokens/s")


def test_pages_follow_one_another_and_keep_the_question(chromium, address):
    visit = Visit(chromium, address).open("?model=llama-3.2-1b&count=1")
    for title, sign in (
        ("Memory", "Turn the dials"),
        ("Time", "One step, played"),
        ("Network", "By axis"),
        ("Plan", "Launch files"),
    ):
        visit.page.get_by_role("link", name=title).click()
        visit.page.get_by_text(sign).first.wait_for(timeout=60_000)
        visit.settle()
        assert "model=llama-3.2-1b" in visit.page.url
    visit.check()


def test_an_upload_is_planned_for_and_a_bad_one_is_one_sentence(chromium, address, tmp_path):
    config = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    config |= {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}
    good, bad = tmp_path / "mine.json", tmp_path / "broken.json"
    good.write_text(json.dumps(config))
    bad.write_text("{")
    visit = Visit(chromium, address).open("?model=gpt2&count=1")
    visit.page.get_by_text("Own model (config.json)").click()
    upload = visit.page.locator('[data-testid="stFileUploader"] input').first
    upload.set_input_files(bad)
    visit.page.get_by_text("broken.json: not JSON").wait_for(timeout=30_000)
    assert "gpt2" in visit.text()
    upload.set_input_files(good)
    visit.page.get_by_text("Train mine on").wait_for(timeout=60_000)
    visit.settle()
    visit.check()
    assert "mine.json" in visit.command()


def test_a_large_cluster_is_answered_in_time(chromium, address):
    visit = Visit(chromium, address)
    begin = time.monotonic()
    visit.open("?model=deepseek-v3&count=2048&seq_len=8192")
    assert time.monotonic() - begin < 60
    visit.check()
    assert "16,384 GPUs" in visit.text()


def test_it_listens_on_this_machine_only(address):
    port = int(address.rsplit(":", 1)[1])
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only says which address would be used
        own = probe.getsockname()[0]
    if own.startswith("127."):
        pytest.skip("this machine has no address but its own")
    with closing(socket.socket()) as outside:
        outside.settimeout(2)
        assert outside.connect_ex((own, port)) != 0
