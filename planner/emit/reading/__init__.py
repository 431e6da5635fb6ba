"""Settings of training frameworks read back: a module for each format."""
