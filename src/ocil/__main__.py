"""`python -m ocil` is the same as `ocil`."""

from ocil.cli import main

if __name__ == "__main__":
    main()
