"""Why a run is slow, out of memory or stuck: what was to be expected, what was measured, and the likely causes."""
