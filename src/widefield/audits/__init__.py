"""What did an encoder learn, and what did it suppress? Floor, ceiling, planted features."""
