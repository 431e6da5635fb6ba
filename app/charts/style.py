"""What the charts have in common: rows with a name each, a legend below that is not cut, heights that hold both."""

from __future__ import annotations

from typing import Any

import altair as alt

Drawing = alt.Chart | alt.LayerChart | alt.FacetChart
AROUND = 95
"""Pixels of an axis with its title and what surrounds a chart."""
LEGEND_ROW = 22


def rows(field: str, *, sort: Any = None, longest: int = 230) -> alt.Y:
    """A row for each name, every one of them written."""
    return alt.Y(f"{field}:N", sort=sort, title=None, axis=alt.Axis(labelLimit=longest, labelOverlap=False))


def legend(*, columns: int = 2, widest: int = 165, lines: bool = False) -> alt.Legend:
    """Below the chart, without a title, in fewer columns where the window is narrow."""
    fitting: Any = alt.ExprRef(f"max(1, min({columns}, floor(width / {widest})))")
    form: dict[str, Any] = {"symbolType": "stroke", "symbolSize": 400, "symbolStrokeWidth": 3} if lines else {}
    return alt.Legend(orient="bottom", title=None, columns=fitting, symbolLimit=0, symbolOpacity=1, **form)


def height(count: int, *, step: int = 26, names: int = 0) -> int:
    """Pixels for so many rows, and a legend of so many names that may stand in two columns."""
    return step * count + AROUND + (LEGEND_ROW * -(-names // 2) + 18 if names else 0)


def tips(*fields: str, digits: str = ".4g") -> list[alt.Tooltip]:
    """What is said of a mark: fields as they are called, figures (with a unit in their name) to four digits."""
    return [alt.Tooltip(name, format=digits) if "(" in name else alt.Tooltip(name) for name in fields]
