"""python -m hlokit: the command `hlokit`."""

from hlokit.tools.main import main

if __name__ == "__main__":
    main()
