"""The view: a value for every control, and the link that says them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.fields import fields

READ, PAGE, BAD = "_link_read", "_page", "_link_bad"
"""Keys of the session that are no values of the view."""


def begin(page: str) -> None:
    """At the start of a run: read the link once a session, give every value its default, and keep those of other pages.

    Streamlit forgets the value of a control that is not on the page; a value that is written again stays.
    """
    st.session_state[PAGE] = page
    if READ not in st.session_state:
        st.session_state[READ], st.session_state[BAD] = True, read_link(st.query_params.to_dict())
    for name, field in fields().items():
        st.session_state[name] = st.session_state.get(name, field.default)


def read_link(link: Mapping[str, str]) -> list[str]:
    """Take over the values of a link; what could not be understood, in words."""
    bad = []
    for name, text in link.items():
        field = fields().get(name)
        try:
            if field is None:
                raise ValueError(name)
            st.session_state[name] = field.read(text)
        except ValueError:
            bad.append(f"{name[:40]}={text[:40]}")
    return bad


def link() -> dict[str, str]:
    """What the address says of this view: the values that are not the defaults, those of other pages left out."""
    page, found = st.session_state[PAGE], {}
    for name, field in fields().items():
        value = st.session_state.get(name, field.default)
        if field.page in ("", page) and value not in (field.default, None):
            found[name] = ",".join(value) if isinstance(value, list) else str(value)
    return found


def write_link() -> None:
    """Put the view into the address."""
    if st.query_params.to_dict() != link():
        st.query_params.from_dict(link())


def value(name: str) -> Any:
    """A value of the view."""
    return st.session_state[name]
