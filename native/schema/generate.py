"""Writes what C++ and Python know of the records of `records.py`: native/records.hpp and engine/wire/kinds.py.

    python native/schema/generate.py [--check]

Both are checked in, so that a build needs nothing of this; a test runs `--check`, which says what differs.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from records import ANY, ANYONE, BODIES, CONSTANTS, DAEMON, ENUMS, LOCAL, PEER, RECORDS, WORKER, Record

ROOT = Path(__file__).resolve().parent.parent.parent
CPP = ROOT / "native" / "records.hpp"
PYTHON = ROOT / "src" / "weft" / "engine" / "wire" / "kinds.py"
TABLE = "native/schema/records.py"
WHOLE = {"task": "walk.task()", "reply": "walk.reply()", "creation": "walk.creation()", "adoption": "walk.adoption()"}
"""Tails that announce their own sizes, and what reads the whole record."""


@dataclass(frozen=True)
class Type:
    cpp: str
    python: str
    size: int
    alignment: int


TYPES = {
    "u32": Type("uint32_t", "I", 4, 4),
    "u64": Type("uint64_t", "Q", 8, 8),
    "id": Type("Id", "16s", 16, 8),
    "process": Type("ProcessId", "II", 8, 4),
    "object": Type("ArenaRef", "IIQ", 16, 8),
    "pad": Type("uint32_t", "4x", 4, 4),
    "DeathCause": Type("DeathCause", "I", 4, 4),
}


@dataclass(frozen=True)
class Body:
    name: str
    fields: tuple[tuple[str, Type], ...]

    @property
    def struct(self) -> str:
        """Its name in C++."""
        return self.name.title().replace("_", "")

    @property
    def size(self) -> int:
        return sum(kind.size for _, kind in self.fields)

    @property
    def format(self) -> str:
        return "<" + "".join(kind.python for _, kind in self.fields)


def body(name: str, said: str) -> Body:
    """ValueError where C++ would leave a gap that the table does not name."""
    pairs = [one.split() for one in said.split(", ")]
    made = Body(name, tuple((field, TYPES[kind]) for field, kind in pairs))
    at = 0
    for field, kind in made.fields:
        if at % kind.alignment:
            raise ValueError(f"{name}: {field} begins at byte {at}, no multiple of {kind.alignment}: add a pad")
        at += kind.size
    if at % max(kind.alignment for _, kind in made.fields):
        raise ValueError(f"{name}: {at} bytes are no multiple of its largest field's alignment: add a field `zero u32`")
    return made


SHARED = {name: body(name, said) for name, (said, _) in BODIES.items()}
BODY = {name: SHARED.get(one.body) or body(name, one.body) for name, one in RECORDS.items() if one.body}


def is_of_daemon(one: Record) -> bool:
    """Whether Python reads or writes it."""
    return bool(one.to_daemon) or one.to_process in (DAEMON, ANYONE)


def filled(words: str, width: int, indent: str) -> str:
    return textwrap.fill(words, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


# ---- C++ ------------------------------------------------------------------------------------------------


def reads(name: str, one: Record, names_only: bool) -> str:
    """An expression: all that the body and the tail announce is there, and each name in it was shown."""
    if one.tail in WHOLE:
        return WHOLE[one.tail]
    steps: list[str] = []
    fields = BODY[name].fields if name in BODY else ()
    skipped = 0
    for _, kind in fields:
        if kind is TYPES["process"]:
            steps += [f"walk.skip({skipped})"] * bool(skipped) + ["walk.process()"]
            skipped = 0
        else:
            skipped += kind.size
    if skipped and not (names_only and not one.tail):
        steps.append(f"walk.skip({skipped})")
    if one.tail == "value":
        steps.append("walk.value()")
    if one.tail == "u64[]":
        steps.append("bytes % sizeof(uint64_t) == 0")
    if counted := re.fullmatch(r"process\[(\w+)\]", one.tail):
        head = BODY[name]
        steps = [f"walk.take(head_of<records::{head.struct}>) && walk.processes(head.{counted[1]})"]
    return " && ".join(steps) or "true"


def cases(of: list[tuple[str, Record]], names_only: bool) -> list[str]:
    """Kinds that are read alike stand together."""
    said = sorted(((reads(name, one, names_only), name) for name, one in of), key=lambda pair: pair[0])
    lines: list[str] = []
    for expression, group in groupby(said, key=lambda pair: pair[0]):
        names = [name for _, name in group]
        if expression == "true":
            continue
        counted = re.fullmatch(r"walk\.take\(head_of<(.*)>\) && (.*)", expression)
        for name in names:
            if counted:
                lines += [f"        case Kind::{name}: {{", f"            {counted[1]} head;"]
                lines += [f"            return walk.take(head) && {counted[2]};", "        }"]
            else:
                lines.append(f"        case Kind::{name}:")
        if not counted:
            lines.append(f"            return {expression};")
    return lines


def enum_values(said: dict[str, int]) -> list[str]:
    return [f"    {name} = {number}," for name, number in said.items()]


def struct(made: Body, words: str, kind: str) -> list[str]:
    lines = [filled(words, 110, "/// ")] if words else []
    lines.append(f"struct {made.struct} {{")
    if kind:
        lines.append(f"    static constexpr Kind kind = Kind::{kind};")
    for name, one in made.fields:
        default = " = DeathCause::ended" if one.cpp == "DeathCause" else " = 0" if one.cpp.startswith("uint") else ""
        lines.append(f"    {one.cpp} {'reserved' if name == '_' else name}{default};")
    return [*lines, "};", f"static_assert(sizeof({made.struct}) == {made.size});"]


def cpp() -> str:
    senders = {DAEMON: "daemon", PEER: "peer", ANYONE: "anyone"}
    lines = [
        "/// The records: their kinds, who may say them, what they begin with. Made by schema/generate.py of",
        "/// schema/records.py, which says it all in words: change that, and run `make records`.",
        "#pragma once",
        "",
        '#include "arena.hpp"',
        '#include "ids.hpp"',
        "",
        "namespace weft {",
        "",
        "enum class Kind : uint16_t {",
        *(f"    {name} = {one.number}," for name, one in RECORDS.items()),
        "};",
        f"constexpr size_t kKinds = {1 << max(one.number for one in RECORDS.values()).bit_length()};",
    ]
    for name, (value, holder, words) in CONSTANTS.items():
        constant = "k" + name.title().replace("_", "")
        lines += ["", filled(words, 110, "/// "), f"constexpr {holder} {constant} = {value:#x};"]
    for name, (words, holder, values) in ENUMS.items():
        lines += ["", filled(words, 110, "/// "), f"enum class {name} : {holder} {{", *enum_values(values), "};"]
    lines += [
        "",
        "/// Who may say a kind to a driver or worker. One bit for the daemon, one for all others.",
        "enum class Sayer : uint8_t { nobody = 0, daemon = 1, peer = 2, anyone = 3 };",
        "",
        "constexpr Sayer sayer(Kind kind) {",
        "    switch (kind) {",
    ]
    for who, word in senders.items():
        names = [name for name, one in RECORDS.items() if one.to_process == who]
        lines += [*(f"        case Kind::{name}:" for name in names), f"            return Sayer::{word};"]
    lines += ["        default:", "            return Sayer::nobody;", "    }", "}", ""]
    lines += ["/// What records begin with.", "namespace records {"]
    for name, (_, words) in BODIES.items():
        if name != "PROCESS" and len(SHARED[name].fields) > 1:
            lines += ["", *struct(SHARED[name], words, "")]
    for name, one in RECORDS.items():
        if name in BODY and one.body not in BODIES and len(BODY[name].fields) > 1:
            lines += ["", *struct(BODY[name], "", name)]
    lines += ["", "}  // namespace records", ""]
    told = [(name, one) for name, one in RECORDS.items() if one.to_process]
    lines += [
        "/// Whether all that a record announces is there, so that its handler reads it without another look.",
        "template <class Walk>",
        "[[gnu::always_inline]] inline bool reads_whole(Kind kind, Walk& walk, size_t bytes) {",
        "    switch (kind) {",
        *cases(told, False),
        "        default:  // its bytes are somebody else's: messages in MessagePack, or none at all",
        "            return true;",
        "    }",
        "}",
        "",
        "/// The same as far as names of processes and objects go, in records that travel between nodes.",
        "template <class Walk>",
        "[[gnu::always_inline]] inline bool reads_names(Kind kind, Walk& walk) {",
        "    switch (kind) {",
        *cases([(name, one) for name, one in RECORDS.items() if one.travels], True),
        "        default:",
        "            return true;",
        "    }",
        "}",
        "",
        "}  // namespace weft",
    ]
    return "\n".join(lines) + "\n"


# ---- Python ---------------------------------------------------------------------------------------------

ROLE = '''class Role(enum.Flag):
    """What a process is to the daemon that it speaks to."""

    DRIVER = enum.auto()
    WORKER = enum.auto()
    FAR = enum.auto()
    """A process of another node, of whatever kind."""
    LOCAL = DRIVER | WORKER
    ANY = LOCAL | FAR'''

CHECK = '''def check_sender(role: Role, kind: int) -> None:
    """ValueError when it is not for that sender to say."""
    if role not in SAYERS.get(kind, Role(0)):
        raise ValueError(f"it is not for {(role.name or 'nobody').lower()} processes to say to a daemon")'''


def direction(one: Record) -> str:
    if one.to_daemon and one.to_process:
        return "Either way"
    if one.to_process == DAEMON:
        return "From the daemon"
    return "To the daemon" if one.to_daemon else "Between processes"


def python() -> str:
    lines = [
        '"""The records that the node daemon reads and writes: their kinds, who may say them, what they begin with.',
        "",
        "Made by native/schema/generate.py of native/schema/records.py: change that, and run `make records`.",
        "Integers are little-endian. A body has the fields that its kind names, or that it shares with others.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "import enum",
        "import struct",
        "",
    ]
    for name, one in RECORDS.items():
        if is_of_daemon(one):
            lines.append(f"{name} = {one.number}")
            said = shown(BODIES[one.body][0] if one.body in BODIES else one.body)
            lines.append(filled(f'"""{direction(one)}{said and f" ({said})"}. {one.words}"""', 120, ""))
    others = [(name, one.number) for name, one in RECORDS.items() if not is_of_daemon(one)]
    for some in (others[:7], others[7:]):
        names, numbers = (", ".join(map(str, column)) for column in zip(*some, strict=True))
        lines.append(f"{names} = {numbers}")
    lines += ['"""Between drivers and workers only; a daemon passes them on."""', ""]
    for name, (value, _, words) in CONSTANTS.items():
        lines += [f"{name} = 0x{value:X}", filled(f'"""{words}"""', 120, "")]
    for name, (words, _, values) in ENUMS.items():
        quoted = words.replace('"', "'")
        lines += ["", "", f"class {name}(enum.IntEnum):", f'    """{quoted}"""', ""]
        lines += [f"    {value.upper()} = {number}" for value, number in values.items()]
    lines += ["", "", ROLE, "", "", "SAYERS = {"]
    for role in (ANY, LOCAL, WORKER):
        names = [name for name, one in RECORDS.items() if one.to_daemon == role]
        for some in (names[:5], names[5:]):
            if some:
                lines.append(f"    **dict.fromkeys(({', '.join(some)}), Role.{role}),")
    lines += [
        "}",
        '"""Who may say what to a daemon; nobody says anything else. Of a lease, an inheritance or an actor, the state',
        'knows whose it is."""',
        "",
        "",
        CHECK,
        "",
        "",
    ]
    for name, (said, words) in BODIES.items():
        lines.append(body_line(SHARED[name]))
        if words and not any(one.body == name for one in RECORDS.values()):  # else its kind says it
            lines.append(filled(f'"""{shown(said)}. {words}"""', 120, ""))
    for name, one in RECORDS.items():
        if name in BODY and one.body not in BODIES and is_of_daemon(one) and len(BODY[name].fields) > 1:
            lines.append(body_line(BODY[name]))
    return "\n".join(lines) + "\n"


def body_line(made: Body) -> str:
    name = made.name if made.name.endswith("_HEAD") else f"{made.name}_BODY"
    return f'{name} = struct.Struct("{made.format}")'


def shown(fields: str) -> str:
    return ", ".join(one for one in fields.split(", ") if not one.endswith(" pad"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing: end with 1 and say what differs")
    check = parser.parse_args().check
    made = {CPP: cpp(), PYTHON: python()}
    differ = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in differ:
        if check:
            print(f"{path.relative_to(ROOT)} is not what {TABLE} says: run `make records`", file=sys.stderr)
        else:
            path.write_text(made[path])
    return 1 if check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
