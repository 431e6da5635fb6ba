"""Pure formulas: quantities in, quantities out."""
