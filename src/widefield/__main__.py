"""`python -m widefield` is `widefield`."""

from widefield.cli import main

if __name__ == "__main__":
    main()
