"""kvstudio-cli inspect: header facts of a GGUF file."""

import argparse
from typing import Any

from kvstudio.cli.inputs import read_model
from kvstudio.cli.output import DONE, emit, emit_json, emit_table, emit_words
from kvstudio.header.values import ArrayValue
from kvstudio.model.values import ModelInfo
from kvstudio.units import format_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a GGUF file, or any shard of a split model")
    parser.add_argument("--tensors", action="store_true", help="list every tensor too")


def run(args: argparse.Namespace) -> int:
    model = read_model(args.file)
    if args.json:
        emit_json(to_json(model, tensors=args.tensors))
        return DONE
    facts = [
        ["name", model.name], ["architecture", model.architecture + ("" if model.known_architecture else " (unknown)")],
        ["file type", model.file_type or "unknown"], ["parameters", f"{model.n_params:,}"],
        ["size", format_bytes(model.size_bytes)], ["shards", str(len(model.header.shards))],
        ["layers", f"{model.n_layer} + output" + (f", {model.n_layer_nextn} MTP" if model.n_layer_nextn else "")],
        ["embedding width", str(model.n_embd)], ["vocabulary", str(model.n_vocab)],
        ["trained context", str(model.n_ctx_train)],
    ]  # fmt: skip
    if model.n_expert:
        facts.append(["experts", f"{model.n_expert}, {model.n_expert_used} used"])
    if model.n_swa:
        facts.append(["sliding window", f"{model.n_swa} in {sum(x.is_swa for x in model.layers)} layers"])
    emit_table(facts, heads=False)
    for warning in (*model.header.warnings, *model.notes):
        emit_words(f"note: {warning}", 2)
    if args.tensors:
        for tensor in model.header.tensors:
            emit(f"{tensor.name}  {'x'.join(map(str, tensor.shape))}  {tensor.n_bytes}")
    return DONE


def to_json(model: ModelInfo, *, tensors: bool = False) -> dict[str, Any]:
    """Header facts; arrays of the metadata appear as their count where the reader skipped them."""
    header = model.header
    metadata = {
        key: (list(v.values) if v.values is not None else {"count": v.count}) if isinstance(v, ArrayValue) else v
        for key, v in header.metadata.items()
    }
    found: dict[str, Any] = {
        "schema": "kvstudio.inspect/1",
        "model": {
            "architecture": model.architecture, "name": model.name, "file_type": model.file_type,
            "n_params": model.n_params, "n_layer": model.n_layer, "n_layer_all": model.n_layer_all,
            "n_embd": model.n_embd, "n_vocab": model.n_vocab, "n_ctx_train": model.n_ctx_train,
            "n_expert": model.n_expert, "n_expert_used": model.n_expert_used, "n_swa": model.n_swa,
            "size_bytes": model.size_bytes, "tensor_bytes": model.tensor_bytes, "shards": len(header.shards),
            "known_architecture": model.known_architecture, "missing_keys": list(model.missing_keys),
        },
        "files": [
            {"path": s.path, "size_bytes": s.size_bytes, "need_bytes": s.need_bytes, "complete": s.complete}
            for s in header.shards
        ],
        "missing_shards": list(header.missing_shards),
        "metadata": metadata,
        "notes": [*header.warnings, *model.notes],
    }  # fmt: skip
    if tensors:
        found["tensors"] = [
            {"name": t.name, "shape": list(t.shape), "type": t.type_id, "bytes": t.n_bytes, "shard": t.shard}
            for t in header.tensors
        ]
    return found
