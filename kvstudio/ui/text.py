"""Words and figures as the window writes them; pure, so that a test can read them."""

from collections.abc import Iterable

from PySide6.QtCore import QCoreApplication

from kvstudio.budget.values import BufferKind, Provenance
from kvstudio.diagnose.values import Diagnosis
from kvstudio.model.values import ModelInfo
from kvstudio.units import format_bytes, format_gib, group_digits

_CONTEXT = "kvstudio"


def tr(source: str) -> str:
    """A sentence of the window in the user's language."""
    return QCoreApplication.translate(_CONTEXT, source)


def kind_name(kind: BufferKind, short: bool = False) -> str:
    """What a kind of memory is called: in the legend, or short inside a bar."""
    long_names = {
        BufferKind.OTHER_PROCESSES: tr("Other processes"),
        BufferKind.OVERHEAD: tr("Overhead"),
        BufferKind.MODEL: tr("Weights"),
        BufferKind.KV: tr("KV cache"),
        BufferKind.RS: tr("Recurrent state"),
        BufferKind.COMPUTE: tr("Compute"),
        BufferKind.OUTPUT: tr("Output"),
    }
    short_names = {BufferKind.OTHER_PROCESSES: tr("Other"), BufferKind.KV: tr("KV"), BufferKind.RS: tr("RS")}
    return short_names.get(kind, long_names[kind]) if short else long_names[kind]


def provenance_name(provenance: Provenance) -> str:
    names = {
        Provenance.EXACT: tr("exact: from the file and llama.cpp's rules"),
        Provenance.ESTIMATED: tr("estimated: a formula with a known error"),
        Provenance.MEASURED: tr("measured: printed by the binary"),
        Provenance.UNKNOWN: tr("unknown"),
    }
    return names[provenance]


def gib(n_bytes: int | None) -> str:
    """`18.5`, or a dash for an unknown size."""
    return "–" if n_bytes is None else format_gib(n_bytes)


def raw_bytes(n_bytes: int) -> str:
    """`8 321 499 136 bytes` with narrow no-break spaces, for tooltips only."""
    return tr("{} bytes").format(group_digits(n_bytes))


def said(message: str, hint: str = "") -> str:
    """An error in one line: what happened, then what to do."""
    return f"{message.rstrip('.')}. {hint}" if hint else message


def plain(name: str) -> str:
    """A name out of a file, for a title: without characters that are not seen or that turn the text around."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def capital(sentence: str) -> str:
    """The sentence with its first letter large; names inside stay as they are."""
    return sentence[:1].upper() + sentence[1:]


def device_names(devices: Iterable[str]) -> dict[str, str]:
    """What each device is called where room is short: `RPC0` for `RPC0[host:port]`, or its server where several have
    one name."""
    names = tuple(dict.fromkeys(devices))
    short = [name.partition("[")[0] for name in names]
    return {
        name: before if short.count(before) == 1 else name.partition("[")[2].rstrip("]") or name
        for name, before in zip(names, short, strict=True)
    }


def layers(n_layers: int, has_output: bool) -> str:
    """What a device gets of the model: `33 layers`, `31 + output`, `output`, `no layers`."""
    if has_output:
        return tr("{} + output").format(n_layers) if n_layers else tr("output")
    if n_layers == 1:
        return tr("1 layer")
    return tr("{} layers").format(n_layers) if n_layers else tr("no layers")


def why_no_launch(has_binary: bool, not_here: tuple[str, ...], working: bool = False) -> str:
    """Why nothing can be launched, and what to do; empty where it can. `working`: the budget is not there yet."""
    if not has_binary:
        return tr("No llama-server was found: choose one first")
    if not not_here:
        return tr("What these settings need is being worked out") if working else ""
    if len(not_here) == 1:
        return tr("{} is not in this machine, so nothing can be launched on it. Untick it first.").format(not_here[0])
    names = ", ".join(not_here)
    return tr("{} are not in this machine, so nothing can be launched on them. Untick them first.").format(names)


def model_line(model: ModelInfo) -> str:
    """One line under a model's name: `Q4_K_M, 18.4 GiB, trained context 40960`."""
    parts = [model.file_type or "", format_bytes(model.size_bytes), tr("trained context {}").format(model.n_ctx_train)]
    return ", ".join(p for p in parts if p)


def log_line(diagnosis: Diagnosis | None) -> str:
    """What a log shows, in a few words: `log, the KV cache did not fit on CUDA1`."""
    if diagnosis is None:
        return tr("log, read")
    says = diagnosis.title or str(diagnosis.outcome)
    return tr("log, {}").format(says if says[:2].isupper() else says[:1].lower() + says[1:])
