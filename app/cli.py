"""`planner app`: starts the app on this machine."""

from __future__ import annotations

from pathlib import Path

import click
from streamlit.web import cli as streamlit_cli

MAIN = Path(__file__).with_name("main.py")
SETTINGS = {
    "server.maxUploadSize": 16,
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#56B4E9",
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "none",
}
"""Beside address and port. Uploads are in MB; nothing is sent anywhere."""


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8501, show_default=True, metavar="N", help="To listen on."
)
@click.option(
    "--address", default="localhost", show_default=True, metavar="HOST", help="0.0.0.0 lets other machines in."
)
@click.option("--no-browser", is_flag=True, help="Only serve; open the printed address yourself.")
def app(port: int, address: str, *, no_browser: bool) -> None:
    """Explore plans in a browser: ranking, memory, time, network, scaling, comparison, accuracy.

    Serves this machine alone unless --address says otherwise, sends nothing anywhere, and works offline.
    """
    streamlit_cli.main(["run", str(MAIN), *flags(port, address, headless=no_browser)], standalone_mode=False)


def flags(port: int, address: str, *, headless: bool) -> list[str]:
    """What `streamlit run` is told."""
    own = {"server.port": port, "server.address": address, "server.headless": str(headless).lower(), **SETTINGS}
    return [f"--{name}={value}" for name, value in own.items()]
