"""Takes the pictures of docs/app: every page of the app, at the width of a laptop and of a phone.

    python docs/refresh_screenshots.py

needs Chromium on PATH, and what `pip install -e '.[test]'` brings.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

FOLDER = Path(__file__).with_name("app")
PORT = 8597
LINKS = {
    "plan": "",
    "memory": "memory?model=llama-3.1-70b&count=8&dial_recompute=full",
    "time": "time?model=llama-3.1-70b&count=4",
    "network": "network?model=llama-3.1-70b&count=8",
    "fits": "fits?model=llama-3.1-70b&count=4",
    "compare": "compare?mode=what_if",
    "accuracy": "accuracy",
}
WIDTHS = {"": 1280, "-phone": 390}
TALLEST = 1500
"""Pixels; what lies below is left out."""


def main() -> None:
    """Start the app, visit every page, write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "planner", "app", "--no-browser", "--port", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait()
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                for name in LINKS:
                    for ending, width in WIDTHS.items():
                        _picture(browser, name, FOLDER / f"{name}{ending}.png", width)
        finally:
            server.kill()


def _wait() -> None:
    for _ in range(60):
        try:
            urllib.request.urlopen(f"http://localhost:{PORT}/_stcore/health", timeout=1).close()
            return
        except OSError:
            time.sleep(0.5)


def _picture(browser: Browser, name: str, path: Path, width: int) -> None:
    """One page, dark on a phone, in few colours so that the file is small."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if width < 600 else "light")
    page.goto(f"http://localhost:{PORT}/{LINKS[name]}")
    page.wait_for_selector('[data-testid="stCode"]', state="attached", timeout=60_000)
    page.wait_for_function("document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'")
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": width, "height": min(height, TALLEST)})
    page.wait_for_timeout(1500)
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(192).save(path, optimize=True)
    page.close()


if __name__ == "__main__":
    main()
