"""A recurrent model's shape as a sparse GGUF file: a true header, holes instead of weights."""

import gguf
import numpy as np

N_EMBD, N_LAYER, D_STATE, D_CONV = 512, 32, 128, 4
D_INNER, DT_RANK, N_VOCAB = 2 * N_EMBD, 32, 300


def write_mamba(path):
    """A small mamba whose recurrent state is large per slot: (3 + 128) x 1024 x 4 bytes x 32 layers, 16.4 MiB."""
    writer = gguf.GGUFWriter(str(path), "mamba")
    writer.add_name("mamba-shape")
    writer.add_context_length(4096)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(N_LAYER)
    writer.add_ssm_conv_kernel(D_CONV)
    writer.add_ssm_inner_size(D_INNER)
    writer.add_ssm_state_size(D_STATE)
    writer.add_ssm_time_step_rank(DT_RANK)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_vocabulary(writer)
    size = 0
    for name, shape in _tensors():
        n_bytes = 4 * int(np.prod(shape))
        writer.add_tensor_info(name, shape, np.dtype(np.float32), n_bytes)
        size += -(-n_bytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(path, "r+b") as file:
        end = file.seek(0, 2)
        file.truncate(-(-end // 32) * 32 + size)
    return str(path)


def _tensors():
    yield "token_embd.weight", (N_VOCAB, N_EMBD)
    yield "output_norm.weight", (N_EMBD,)
    for i in range(N_LAYER):
        yield f"blk.{i}.attn_norm.weight", (N_EMBD,)
        yield f"blk.{i}.ssm_in.weight", (2 * D_INNER, N_EMBD)
        yield f"blk.{i}.ssm_conv1d.weight", (D_INNER, D_CONV)
        yield f"blk.{i}.ssm_conv1d.bias", (D_INNER,)
        yield f"blk.{i}.ssm_x.weight", (DT_RANK + 2 * D_STATE, D_INNER)
        yield f"blk.{i}.ssm_dt.weight", (D_INNER, DT_RANK)
        yield f"blk.{i}.ssm_dt.bias", (D_INNER,)
        yield f"blk.{i}.ssm_a", (D_INNER, D_STATE)
        yield f"blk.{i}.ssm_d", (D_INNER,)
        yield f"blk.{i}.ssm_out.weight", (N_EMBD, D_INNER)


def _add_vocabulary(writer):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    tokens += [f"t{i}" for i in range(N_VOCAB - len(tokens))]
    kinds = [2, 3, 3, *[6] * 256]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * N_VOCAB)
    writer.add_token_types(kinds + [1] * (N_VOCAB - len(kinds)))


def write_projector(path, n_embd_text):
    """A small projector of the LLaVA kind, of random weights, for a model whose embeddings are `n_embd_text` wide."""
    n_embd, n_ff, n_layer, side, patch = 32, 64, 2, 28, 14
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    for name, value in (
        ("image_size", side), ("patch_size", patch), ("embedding_length", n_embd), ("feed_forward_length", n_ff),
        ("projection_dim", n_embd_text), ("block_count", n_layer), ("attention.head_count", 2),
    ):  # fmt: skip
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    random = np.random.default_rng(1)

    def add(name, *shape, dtype=np.float32):
        writer.add_tensor(name, random.normal(0, 0.02, shape).astype(dtype))

    add("v.patch_embd.weight", n_embd, 3, patch, patch, dtype=np.float16)
    add("v.position_embd.weight", (side // patch) ** 2, n_embd)
    for i in range(n_layer):
        for part, out, into in (
            ("attn_q", n_embd, n_embd), ("attn_k", n_embd, n_embd), ("attn_v", n_embd, n_embd),
            ("attn_out", n_embd, n_embd), ("ffn_up", n_ff, n_embd), ("ffn_down", n_embd, n_ff),
        ):  # fmt: skip
            add(f"v.blk.{i}.{part}.weight", out, into)
            add(f"v.blk.{i}.{part}.bias", out)
        for part in ("ln1", "ln2"):
            add(f"v.blk.{i}.{part}.weight", n_embd)
            add(f"v.blk.{i}.{part}.bias", n_embd)
    add("mm.0.weight", n_embd_text, n_embd)
    add("mm.0.bias", n_embd_text)
    add("mm.2.weight", n_embd_text, n_embd_text)
    add("mm.2.bias", n_embd_text)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)
