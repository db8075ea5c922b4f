"""The command line. Each command imports what it needs, so help and reports start at once."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Sequence
from typing import NoReturn

import ocil
from ocil.commands import COMMANDS
from ocil.errors import OcilError, Stopped, suggest
from ocil.text import plain

HELP = """\
[bold]ocil[/] {version} - online class-incremental learning: learn from a stream in which new
classes keep arriving, see each batch once, keep a small memory, do not forget.

[bold]Commands[/]
  ocil run METHOD      learn a stream with a method       ocil run er --data digits --memory 100
  ocil resume DIR      continue a run that was stopped    ocil resume runs/first
  ocil learn DATA      teach a model file your own data   ocil learn photos --model my.ocil
  ocil predict MODEL   labels for files and folders       ocil predict my.ocil new/*.jpg --csv
  ocil score MODEL     accuracy on labelled data          ocil score my.ocil test-photos
  ocil inspect MODEL   what a model file has learned, as a small page
  ocil forget MODEL    take a class back, or samples      ocil forget my.ocil cat
  ocil relabel MODEL   give samples their right label     ocil relabel --help
  ocil merge A B       models with one encoder as one     ocil merge a.ocil b.ocil --out ab.ocil
  ocil show DIR        accuracy matrix and metrics        ocil show runs/first
  ocil report DIR      a page of results from records     ocil report runs --out page
  ocil results DIR     RESULTS.md from the records of studies
  ocil figure KIND     a figure as PDF or PNG             ocil figure latent runs --out a.png
  ocil study FILE      a grid of runs, finished ones skipped   ocil study my.toml --workers 2
  ocil tune METHOD     search its settings on held-out images  ocil tune er --trials 30
  ocil methods         the methods and their presets
  ocil data            list | get NAME | check NAME
  ocil completion      completion for bash or zsh

Each has its own [bold]--help[/]; [bold]--version[/] prints the version.
[bold]--debug[/] shows tracebacks.
Start with [bold]ocil run er[/]: it needs no download and takes seconds.
"""


MAX_MESSAGE = 4000  # characters of a message


class _OneLine(logging.Formatter):
    """Messages name files and text from them: they are shown as text."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record), MAX_MESSAGE)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Exit with 0: done, 2: to be mended, 75: in use elsewhere, 128 + n: stopped by signal n."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [w for w in words if w != "--debug"]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        _dispatch(words)
    except OcilError as error:
        _fail(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        _fail("Interrupted.", 130, debug)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; nothing is left to say
        sys.exit(0)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        _fail(f"Cannot use {what}; check that it exists and that you may use it.", 2, debug)
    except Stopped as stop:
        _fail(str(stop), 128 + stop.number, debug)
    except Exception as error:
        text = str(error).split("\n")[0]
        if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
            _fail(f"Not enough memory ({text}); lower --memory, --width or --batch.", 2, debug)
        _fail(f"Unexpected {type(error).__name__}: {text} (--debug shows where).", 1, debug)
    sys.exit(0)


def _fail(message: str, code: int, debug: bool) -> NoReturn:
    if debug:
        import traceback

        for line in traceback.format_exc().splitlines():
            sys.stderr.write(f"{plain(line, MAX_MESSAGE)}\n")
    sys.stderr.write(f"ocil: {plain(message, MAX_MESSAGE)}\n")
    sys.exit(code)


def _dispatch(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        from rich.console import Console

        Console().print(HELP.format(version=ocil.__version__))
    elif words[0] == "--version":
        sys.stdout.write(f"ocil {ocil.__version__}\n")
    elif words[0] in COMMANDS:
        from ocil.commands.parsing import parse

        module, _, name = COMMANDS[words[0]].partition(":")
        command = getattr(importlib.import_module(f"ocil.commands.{module}"), name)
        if isinstance(command, type):
            parse(command, words[1:], f"ocil {words[0]}")()
        else:
            command(words[1:])
    else:
        hint = suggest(words[0], COMMANDS) or f" Commands: {', '.join(COMMANDS)}."
        raise OcilError(f"Unknown command '{words[0]}'.{hint}")


if __name__ == "__main__":
    main()
