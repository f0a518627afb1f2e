"""`python -m cantle` is `cantle`."""

from cantle.cli.main import main

if __name__ == "__main__":
    main()
