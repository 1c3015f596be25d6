"""The command `ensemble`, in this process or another."""

from typer.testing import CliRunner

from exporter.command_line.app import make_app

# For `python -c`, with the command's arguments behind it.
PROGRAM = "import sys; sys.argv[0] = 'ensemble'; from exporter.command_line import main; main()"


def ensemble(*arguments):
    return CliRunner().invoke(make_app(), [*map(str, arguments)], env={"COLUMNS": "80"})


def printed(*arguments):
    """The standard output of a command that succeeds."""
    result = ensemble(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout
