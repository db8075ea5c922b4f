"""`ocil completion bash|zsh`: a script that completes commands, methods, data sets and flags."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import Literal

import tyro

from ocil.commands.parsing import parse


@dataclass(frozen=True)
class CompletionOptions:
    """Completion for your shell: eval "$(ocil completion bash)"."""

    shell: tyro.conf.Positional[Literal["bash", "zsh"]] = "bash"


SCRIPT = """\
_ocil() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words
  if [ "$COMP_CWORD" -eq 1 ]; then words={commands}
  elif [ "$before" = "--data" ]; then words={data}
  elif [ "$before" = "run" ]; then words={methods}
  elif [ "$before" = "data" ]; then words="list get check"
  elif [ "${{COMP_WORDS[1]}}" = "data" ] && [ "$COMP_CWORD" -eq 3 ]; then words={data}
  elif [ "${{COMP_WORDS[1]}}" = "run" ] && [[ "$current" == -* ]]; then words={flags}
  else COMPREPLY=(); return; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _ocil ocil
"""


def completion(words: list[str]) -> None:
    options = parse(CompletionOptions, words, "ocil completion")
    from ocil.commands import COMMANDS
    from ocil.commands.run import Places
    from ocil.data import SOURCES
    from ocil.learners import registry

    keys = {key for name in registry.names() for key in registry.info(name).fields}
    keys |= set(Places.__annotations__)
    script = SCRIPT.format(
        commands=shlex.quote(" ".join(COMMANDS)),
        methods=shlex.quote(" ".join(registry.names())),
        data=shlex.quote(" ".join(SOURCES)),
        flags=shlex.quote(" ".join(sorted(f"--{k.replace('_', '-')}" for k in keys))),
    )
    if options.shell == "zsh":
        script = "autoload -U +X bashcompinit && bashcompinit\n" + script
    sys.stdout.write(script)
