"""What this machine does, as ratios of two things run turn by turn in one process."""
