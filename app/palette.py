"""Colours that people with any kind of colour vision tell apart, on light and dark ground.

Source: M. Okabe and K. Ito, "Color Universal Design", 2008; without black, which dark ground swallows.
"""

from __future__ import annotations

ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, GREY)
"""In the order in which series take them."""

KINDS = {
    "compute": BLUE,
    "memory bandwidth": SKY,
    "communication": ORANGE,
    "waiting": GREY,
    "pipeline": GREY,
}
VERDICTS = {"fits": GREEN, "tight": ORANGE, "does not fit": VERMILION}
MEMORY = {
    "weights": BLUE,
    "gradients": ORANGE,
    "optimizer": GREEN,
    "activations": SKY,
    "logits": PURPLE,
    "gather_buffers": YELLOW,
    "communication_buffers": VERMILION,
    "context": GREY,
    "reserve": "#C9C9C9",
}
"""Items of a peak, in the order in which they are stacked."""
