"""Data only: models, accelerators, links, node types, profiles, prices; and the functions that look them up."""
