"""What all pages have in common: headings, tables, charts, downloads, errors, the command that says the same."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal

import altair as alt
import pandas as pd
import streamlit as st

from planner import NoFeasiblePlan, PlannerError

MOST_DECIMALS = 4
TEMPORARY = re.compile(r"\S*planner-app-[^/\s]+/[0-9a-f]{16}/")
"""Where copies of uploads lie: nobody knows them by that."""


def named(text: str) -> str:
    """A text with files by the names that their owner knows."""
    return TEMPORARY.sub("", text)


def words(error: Exception) -> str:
    """What an error says."""
    return named(str(error))


def plain(text: str) -> str:
    """Text as markdown that shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#$~|])", r"\\\1", text)


@contextmanager
def guarded() -> Iterator[None]:
    """Whatever fails inside is one sentence, and the rest of the page lives on."""
    try:
        yield
    except NoFeasiblePlan as error:
        nothing_fits(error)
    except PlannerError as error:
        st.error(plain(words(error)), icon=":material/error:")
    except Exception as error:  # the page's last line of defence
        st.error(f"Internal error: {plain(f'{type(error).__name__}: {words(error)}')}", icon=":material/bug_report:")


def panel(draw: Callable[..., None]) -> Callable[..., None]:
    """A part of a page that runs alone when its own controls change, and fails alone."""

    @wraps(draw)
    def safe(*asked: Any) -> None:
        with guarded():
            draw(*asked)

    made: Callable[..., None] = st.fragment(safe)
    return made


def nothing_fits(error: NoFeasiblePlan) -> None:
    """Why there is no plan, with the reasons that were counted."""
    st.warning(plain(words(error)), icon=":material/block:")
    if error.rejected:
        reasons(error.rejected)


def reasons(rejected: Any) -> None:
    """What turned plans down, the commonest first."""
    rows = sorted(rejected.items(), key=lambda item: -item[1])
    frame = pd.DataFrame(rows, columns=["why plans were turned down", "plans, or parts of plans"])
    table(frame, height=min(38 * len(rows) + 38, 300))


def table(frame: pd.DataFrame, *, height: int | Literal["auto"] = "auto") -> None:
    """A table with units in its header, figures to three digits or more; its tool bar saves it as CSV."""
    shown, columns = frame.copy(), {}
    for name in frame.select_dtypes("float"):
        known = frame[name].abs()[frame[name].abs() > 0]
        least = float(known.min()) if len(known) else 0.0
        if least >= 1000 and not name.endswith(("(s)", "(GiB)", "(%)")):
            shown[name] = frame[name].round()  # without it, a column with thousands separators has three decimals
        columns[name] = st.column_config.NumberColumn(format=digits(least))
    st.dataframe(shown, hide_index=True, height=height, column_config=columns)


def chart(drawing: alt.Chart | alt.LayerChart | Any, frame: pd.DataFrame, name: str, *, alternative: str = "") -> None:
    """A chart and its figures as CSV; its own menu saves it as a picture."""
    st.altair_chart(drawing, theme="streamlit", width="stretch", key=f"chart_{name}")
    st.download_button(
        "CSV",
        frame.to_csv(index=False),
        f"{name}.csv",
        "text/csv",
        key=f"csv_{name}",
        icon=":material/download:",
        type="tertiary",
        help=alternative or "The figures of this chart",
        on_click="ignore",
    )


def digits(least: float) -> str:
    """The format of a column of numbers whose least is this: three digits of it at least.

    >>> digits(3.0), digits(0.0123), digits(45678.9)
    ('%.2f', '%.4f', 'localized')
    """
    if not least > 0:
        return "%.2f"
    decimals = min(max(2 - math.floor(math.log10(least)), 0), MOST_DECIMALS)
    return "localized" if least >= 1000 else f"%.{decimals}f"


def command(text: str, title: str = "The same on the command line") -> None:
    """The command line that answers the same, or does what the title says."""
    if title:
        st.caption(title)
    st.code(text, language="bash", wrap_lines=True)


def figures(values: Sequence[tuple[str, str, str]]) -> None:
    """Figures side by side: what, value with unit, and what belongs to it."""
    with st.container(horizontal=True, gap="medium"):
        for name, value, note in values:
            st.metric(name, value, note or None, delta_color="off", delta_arrow="off", width=150)


def notes(assumed: Sequence[str], remarks: Sequence[str]) -> None:
    """What was assumed and what is noteworthy."""
    for remark in remarks:
        st.caption(f":material/info: {plain(named(remark))}")
    if assumed:
        st.caption(f"Assumed: {plain('; '.join(assumed))}")
