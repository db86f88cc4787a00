"""Runs the command ``likeness``, as ``python -m likeness``."""

from ._binary import main

if __name__ == "__main__":
    main()
