"""Studies: a TOML grid over settings becomes jobs, and jobs become records."""
