"""``python -m dpaudit``: the same as the command ``dpaudit``."""

from dpaudit.cli import main

if __name__ == "__main__":
    main()
