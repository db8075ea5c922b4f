"""Commands of old records that presets have overtaken: `python results/commands.py [--write]`.

A record's command names what differed from the presets of its day. Where one of them has changed
since, the command would now give other settings than the record has. This lists such records, and
with `--write` gives them a command that names these settings as well; nothing else is changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ocil.learners import registry
from ocil.run.record import command, left_out, write
from ocil.settings import from_mapping

for path in sorted(Path(__file__).parent.glob("*/*/record.json")):
    record = json.loads(path.read_text(encoding="utf-8"))
    if other := left_out(record):
        print(path.parent, *(f"{key}={value}" for key, value in other.items()))
        if "--write" in sys.argv[1:]:
            kind = registry.get(record["method"]).settings_type
            record["command"] = command(record["method"], from_mapping(kind, record["settings"]))
            write(path, record)
