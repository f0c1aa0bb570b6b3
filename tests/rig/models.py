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
