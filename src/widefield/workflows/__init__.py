"""What a user asks for, one file each: the calls behind the commands."""
