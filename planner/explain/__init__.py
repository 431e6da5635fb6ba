"""Why: breakdowns, comparisons, sensitivities."""
