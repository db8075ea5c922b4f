"""`ocil completion bash|zsh`: a script that completes commands, methods, data sets and flags."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import Literal

from ocil.commands import COMMANDS
from ocil.commands.flags import flag_name
from ocil.commands.parsing import Positional

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


@dataclass(frozen=True)
class Completion:
    """Completion for your shell: eval "$(ocil completion bash)"."""

    shell: Positional[Literal["bash", "zsh"]] = "bash"

    def __call__(self) -> None:
        from ocil.commands.run import RunPaths
        from ocil.data import SOURCES
        from ocil.learners import registry

        keys = {key for name in registry.names() for key in registry.info(name).fields}
        flags = sorted(flag_name(key) for key in keys | set(RunPaths.__annotations__))
        lists = {"commands": COMMANDS, "methods": registry.names(), "data": SOURCES, "flags": flags}
        script = SCRIPT.format(**{name: shlex.quote(" ".join(own)) for name, own in lists.items()})
        if self.shell == "zsh":
            script = "autoload -U +X bashcompinit && bashcompinit\n" + script
        sys.stdout.write(script)
