"""Writes tiny.gguf: a small whole llama-shaped model of random weights, for tests and for trying the program."""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

N_LAYER, N_EMBD, N_HEAD, N_HEAD_KV, N_FF, N_VOCAB = 4, 64, 4, 2, 128, 320


def main() -> None:
    """Write the file beside this script."""
    rng = np.random.default_rng(7)
    writer = GGUFWriter(Path(__file__).with_name("tiny.gguf"), "llama")
    writer.add_name("Tiny llama")
    writer.add_size_label("0.2M")
    writer.add_file_type(1)
    writer.add_context_length(4096)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *(f"t{i}" for i in range(259, N_VOCAB))]
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * N_VOCAB)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (N_VOCAB - 259))
    width_kv = N_EMBD // N_HEAD * N_HEAD_KV

    def add(name: str, *shape: int, dtype: type = np.float16) -> None:
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.05, shape).astype(dtype))

    add("token_embd", N_VOCAB, N_EMBD)
    for layer in range(N_LAYER):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm", N_EMBD, dtype=np.float32)
        add(f"{block}.attn_q", N_EMBD, N_EMBD)
        add(f"{block}.attn_k", width_kv, N_EMBD)
        add(f"{block}.attn_v", width_kv, N_EMBD)
        add(f"{block}.attn_output", N_EMBD, N_EMBD)
        add(f"{block}.ffn_norm", N_EMBD, dtype=np.float32)
        add(f"{block}.ffn_gate", N_FF, N_EMBD)
        add(f"{block}.ffn_up", N_FF, N_EMBD)
        add(f"{block}.ffn_down", N_EMBD, N_FF)
    add("output_norm", N_EMBD, dtype=np.float32)
    add("output", N_VOCAB, N_EMBD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
