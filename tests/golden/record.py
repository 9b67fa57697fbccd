"""Writes the table of reference runs, `runs.json`.

    python tests/golden/record.py          # train all runs again and write the hashes that they have now
    python tests/golden/record.py --add    # add the hashes of a machine that computes other bits

The tests hold every run to these hashes, to the bit. Record again only after a change that is meant to alter
what is computed, and say in that commit which runs have moved and why; a change of names, of structure or of
speed is not one. `--add` is for a machine that the tests skip: run it with sources that pass elsewhere.

A run that is in the table keeps the settings it has there, whatever defaults and presets have become; a new
one in `cases.py` is added with all of its settings spelt out. To spell one out again, delete its line first.
The hashes that other machines have recorded are kept for runs that have not moved here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cases
import golden


def record(*, add: bool) -> None:
    before = golden.table() if golden.TABLE.exists() else {"machines": {}, "runs": {}, "fixtures": {}}
    runs: dict[str, Any] = {}
    for group, members in cases.GROUPS.items():
        entries = {name: before["runs"].get(name) or spelt(group, name, members[name]) for name in members}
        done = golden.trained(entries)
        here = done["fingerprints"]
        if any("settings" not in trained for trained in done["runs"].values()):
            sys.exit("not all runs could be trained; nothing is written")
        for name, entry in entries.items():
            known = entry.get("weights_sha256", {})
            found = {golden.fingerprint_of(entry, here): done["runs"][name]["weights_sha256"]}
            settings = entry["settings"] if known else done["runs"][name]["settings"]
            runs[name] = {**entry, "settings": settings, "weights_sha256": merged(name, known, found, add)}
    fixtures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, finish in golden.FINISHED.items():
            known, found = before["fixtures"].get(name, {}), {here["arithmetic"]: finish(Path(folder))}
            fixtures[name] = merged(f"fixture {name}", known, found, add)
    refuse_twins(runs)
    machine = {**done["machine"], "commit": commit(), "dropout": here["dropout"]}
    machines = {**before["machines"], here["arithmetic"]: machine}
    kept = {of for entry in runs.values() for of in entry["weights_sha256"]}
    machines = {of: machine for of, machine in machines.items() if of in kept}
    write({"machines": machines, "runs": runs, "fixtures": fixtures})


def spelt(group: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new entry; training spells its settings out."""
    given = {"given": cases.GIVEN[name][0]} if name in cases.GIVEN else {}
    return {"group": group, **given, "settings": dict(settings)}


def merged(name: str, known: Mapping[str, str], found: Mapping[str, str], add: bool) -> dict[str, str]:
    """Return the hashes of an entry, and say what has moved."""
    ((of, hash),) = found.items()
    if of in known and known[of] != hash:
        if add:
            sys.exit(f"{name} has another hash here than the table has for this machine; nothing is written")
        print(f"moved: {name}")
        return dict(found)  # what other machines have recorded is no longer true
    return {**known, **found}


def refuse_twins(runs: Mapping[str, Any]) -> None:
    """Refuse runs that end alike: one of them does not show what it is there for."""
    alike = defaultdict(list)
    for name, entry in runs.items():
        alike[next(reversed(entry["weights_sha256"].values()))].append(name)
    twins = [names for names in alike.values() if len(names) > 1]
    if twins:
        sys.exit(f"these runs have the same weights, nothing is written: {twins}")


def commit() -> str:
    found = subprocess.run(
        ["git", "-C", str(golden.HERE), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    return found.stdout.strip() or "unknown"


def write(table: Mapping[str, Any]) -> None:
    """Write the table with a line for all settings of a run, so that a change is a line."""
    lines = ["{", ' "machines": {']
    lines.append(",\n".join(f"  {json.dumps(of)}: {json.dumps(m)}" for of, m in table["machines"].items()))
    lines += [" },", ' "runs": {']
    entries = []
    for name, entry in table["runs"].items():
        fields = ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items())
        entries.append(f"  {json.dumps(name)}: {{\n{fields}\n  }}")
    lines.append(",\n".join(entries))
    lines += [" },", ' "fixtures": {']
    lines.append(
        ",\n".join(f"  {json.dumps(name)}: {json.dumps(h)}" for name, h in table["fixtures"].items())
    )
    golden.TABLE.write_text("\n".join([*lines, " }", "}"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(add="--add" in sys.argv[1:])
