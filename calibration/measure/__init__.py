"""Measurements on the accelerator at hand, with torch; what is fitted to them lies outside."""
