"""What every room may use: files, random numbers, memory, precision. It imports no other room."""
