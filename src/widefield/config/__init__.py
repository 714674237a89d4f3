"""Settings of a run, the measured defaults, and how they become one `Recipe`."""
