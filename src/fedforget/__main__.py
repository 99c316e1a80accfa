"""`python -m fedforget` is the command `fedforget`, for where it is not on the path."""

from fedforget.cli import main

if __name__ == "__main__":
    main("fedforget")
