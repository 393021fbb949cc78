"""`python -m highwater`."""

from highwater.command_line import main

if __name__ == "__main__":
    main()
