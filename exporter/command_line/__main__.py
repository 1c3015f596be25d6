"""`python -m exporter.command_line`, the command `ensemble`."""

from exporter.command_line.app import main

if __name__ == "__main__":
    main()
