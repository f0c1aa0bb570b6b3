"""A filled bug report as plain values: fields, sections, log and what is hidden in them."""

from dataclasses import dataclass, replace
from enum import StrEnum

from kvstudio.diagnose.values import KeyLine
from kvstudio.runlog.values import LogLine


@dataclass(frozen=True, slots=True)
class Field:
    """One fact a maintainer asks for. `value` None: not collected; `how` is the command (or step) that would tell."""

    id: str
    label: str
    value: str | None
    how: str

    @property
    def collected(self) -> bool:
        return self.value is not None


class BlockKind(StrEnum):
    """How a piece of the report is set."""

    CODE = "code"  # facts and commands, fixed width
    PROSE = "prose"  # a sentence
    MISSING = "missing"  # says what was not collected and what would tell
    KEY = "key"  # the line that decided
    LOG = "log"  # where the log goes


@dataclass(frozen=True, slots=True)
class Block:
    """A run of text set in one way; `text` of a LOG block is empty, the log itself is `Report.log`."""

    kind: BlockKind
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the upstream form and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Redaction:
    """Something that may be hidden everywhere it stands.

    `token` is what replaces it (`HOME`, `IP 1`), `value` what it replaces, `pattern` a regular expression with one
    group `v` around the part to hide. `places` counts where it stands in the whole report, log included.
    """

    token: str
    value: str
    pattern: str
    reason: str
    places: int = 0
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells this machine and its user, to be hidden: passed in by whoever may look at the environment.

    `others` are names of other users, as in a list of processes; `prompts` what the test launch asked.
    """

    home: str = ""
    user: str = ""
    others: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a bug report says. Texts are unredacted; every renderer hides what `redactions` says.

    `dropped_lines` counts lines of the log that were not kept in memory, `log_path` names the file that has them all.
    """

    title: str
    subtitle: str
    fields: tuple[Field, ...]
    sections: tuple[Section, ...]
    log: tuple[LogLine, ...] = ()
    key_line: KeyLine | None = None
    redactions: tuple[Redaction, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    dropped_lines: int = 0
    log_path: str | None = None

    @property
    def n_collected(self) -> int:
        return sum(f.collected for f in self.fields)

    @property
    def places(self) -> int:
        """How many places are hidden now."""
        return sum(r.places for r in self.redactions if r.hidden)

    def field(self, field_id: str) -> Field:
        """The field of that id; raises KeyError."""
        for candidate in self.fields:
            if candidate.id == field_id:
                return candidate
        raise KeyError(field_id)

    def switched(self, token: str, hidden: bool) -> "Report":
        """The same report with one redaction on or off."""
        changed = tuple(replace(r, hidden=hidden) if r.token == token else r for r in self.redactions)
        return replace(self, redactions=changed)
