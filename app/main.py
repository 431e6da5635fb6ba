"""The app: pages at the top, the question at the left, the answer below. Started by `planner app`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import streamlit as st

from app import state, ui
from app.inputs import Inputs, inputs, sidebar

ICON = Path(__file__).with_name("icon.svg")
# Module of app.views and its place in the address -> title and icon. (Streamlit would show a text that stands alone.)
PAGES = {
    "plan": ("Plan", ":material/route:"),
    "memory": ("Memory", ":material/memory:"),
    "time": ("Time", ":material/timeline:"),
    "network": ("Network", ":material/hub:"),
    "fits": ("What fits", ":material/grid_on:"),
    "compare": ("Compare", ":material/compare_arrows:"),
    "accuracy": ("Accuracy", ":material/target:"),
}


def main() -> None:
    """One run of the script."""
    st.set_page_config("planner", str(ICON), layout="wide")
    pages = [_page(name, *words) for name, words in PAGES.items()]
    page = st.navigation(pages, position="top")
    state.begin(page.url_path or next(iter(PAGES)))
    with ui.guarded():
        _link_errors()
    page.run()
    state.write_link()


def _page(name: str, title: str, icon: str) -> st.Page:
    return st.Page(_drawn(name), title=title, icon=icon, url_path=name, default=name == next(iter(PAGES)))


def _drawn(name: str) -> Callable[[], None]:
    """What draws a page: the question at the left, then the page's own part; neither takes the other down."""

    def draw() -> None:
        asked: Inputs = inputs()
        with ui.guarded():
            asked = sidebar()
        with ui.guarded():
            import_module(f"app.views.{name}").draw(asked)

    draw.__name__ = name
    return draw


def _link_errors() -> None:
    bad = st.session_state.get(state.BAD)
    if bad:
        st.warning(f"The link says what is not known here, and that was left out: {ui.plain(', '.join(bad[:5]))}")


main()
