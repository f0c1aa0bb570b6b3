"""launch.argv: a command line becomes settings and comes back as it was typed."""

import re
from dataclasses import fields
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstudio.errors import ConfigError
from kvstudio.launch.argv import build_argv, build_env, format_command, parse_argv, split_command
from kvstudio.launch.config import CACHE_TYPES, SPLIT_MODES, LaunchConfig
from kvstudio.launch.flags import BENCH, COMMON, INT_MAX, LOAD_MODES


def parse(text: str, env: tuple[tuple[str, str], ...] = ()) -> LaunchConfig:
    return parse_argv(split_command(text), env)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("-m a.gguf", "model_path", "a.gguf"),
        ("--model a.gguf", "model_path", "a.gguf"),
        ("-hf user/repo:Q4_K_M", "hf_repo", "user/repo:Q4_K_M"),
        ("-c 4096", "n_ctx", 4096),
        ("--ctx-size 0", "n_ctx", 0),
        ("--ctx_size 4096", "n_ctx", 4096),
        ("-c 1024 -c 2048", "n_ctx", 2048),
        ("-np -1", "n_parallel", -1),
        ("--parallel 8", "n_parallel", 8),
        ("-kvu", "kv_unified", True),
        ("--kv-unified", "kv_unified", True),
        ("-no-kvu", "kv_unified", False),
        ("--no-kv-unified", "kv_unified", False),
        ("-kvu --no-kv-unified", "kv_unified", False),
        ("-ctk q8_0", "cache_type_k", "q8_0"),
        ("--cache-type-v iq4_nl", "cache_type_v", "iq4_nl"),
        ("-ngl 99", "n_gpu_layers", 99),
        ("--gpu-layers auto", "n_gpu_layers", -1),
        ("--n-gpu-layers all", "n_gpu_layers", -2),
        ("-ngl -7", "n_gpu_layers", -2),
        ("-sm row", "split_mode", "row"),
        ("-ts 3,1", "tensor_split", (3.0, 1.0)),
        ("-ts 3/1", "tensor_split", (3.0, 1.0)),
        ("-ts 0.75,0.25,0", "tensor_split", (0.75, 0.25, 0.0)),
        ("-mg 1", "main_gpu", 1),
        ("-dev CUDA0,CUDA1", "device", ("CUDA0", "CUDA1")),
        ("-dev none", "device", ("none",)),
        ("-b 512", "n_batch", 512),
        ("-ub 256", "n_ubatch", 256),
        ("-fa", "flash_attn", "on"),
        ("-fa on", "flash_attn", "on"),
        ("-fa 0", "flash_attn", "off"),
        ("--flash-attn auto -c 1", "flash_attn", "auto"),
        ("--flash-attn -c 1", "flash_attn", "on"),
        ("-nkvo", "kv_offload", False),
        ("--no-kv-offload", "kv_offload", False),
        ("-kvo", "kv_offload", True),
        ("--no-op-offload", "op_offload", False),
        ("--swa-full", "swa_full", True),
        ("--no-host", "no_host", True),
        ("-nr", "repack", False),
        ("-lm mlock", "load_mode", "mlock"),
        ("--no-mmap", "load_mode", "none"),
        ("--mlock", "load_mode", "mmap+mlock"),
        ("--mlock --no-mmap", "load_mode", "mlock"),
        ("--no-mmap --mlock", "load_mode", "mlock"),
        ("--no-mmap --mmap", "load_mode", "mmap"),
        ("-dio --no-mmap", "load_mode", "dio"),
        ("-ndio", "load_mode", "auto"),
        ("-lzm on", "lazy_mode", "on"),
        ("-ot exps=CPU", "override_tensor", (("exps", "CPU"),)),
        ("-ot exps=CPU -ot a=CUDA0,b=CUDA1", "override_tensor", (("exps", "CPU"), ("a", "CUDA0"), ("b", "CUDA1"))),
        (r"-ot '\.ffn_(up|down)_exps\.=CPU'", "override_tensor", ((r"\.ffn_(up|down)_exps\.", "CPU"),)),
        ("-cmoe", "cpu_moe", True),
        ("-ncmoe 10", "n_cpu_moe", 10),
        ("-fit off", "fit", False),
        ("-fitt 1024,2048", "fit_target", (1024, 2048)),
        ("-fitc 8192", "fit_ctx", 8192),
        ("--rpc a:50052,b:50052", "rpc", ("a:50052", "b:50052")),
        ("-mm p.gguf", "mmproj", "p.gguf"),
        ("--no-mmproj", "mmproj_auto", False),
        ("--no-mmproj-offload", "mmproj_offload", False),
        ("--lora a,b --lora c", "lora", ("a", "b", "c")),
        ("--lora '\"a,b\",c'", "lora", ("a,b", "c")),
        ("--lora-scaled a:0.5", "lora_paths", ("a",)),
        ("--spec-type draft-mtp --spec-type ngram-mod", "spec_type", "draft-mtp,ngram-mod"),
        ("-md d.gguf", "model_draft", "d.gguf"),
        ("--spec-draft-model d.gguf", "model_draft", "d.gguf"),
        ("--draft-max 16", "draft_n_max", 16),
        ("--draft 16", "draft_n_max", 16),
        ("--spec-draft-n-max 16", "draft_n_max", 16),
        ("-ngld all", "n_gpu_layers_draft", -2),
        ("-ctkd q8_0", "cache_type_k_draft", "q8_0"),
        ("-devd CUDA1", "device_draft", ("CUDA1",)),
        ("--embeddings", "embeddings", True),
        ("--rerank", "reranking", True),
        ("--pooling last", "pooling", "last"),
        ("-cram -1", "cache_ram", -1),
        ("--swa-checkpoints 3", "ctx_checkpoints", 3),
        ("--no-warmup", "warmup", False),
        ("-t 8", "threads", 8),
        ("-lv 4", "log_verbosity", 4),
        ("-v", "log_verbosity", INT_MAX),
    ],
)
def test_spellings(text: str, field: str, value: object) -> None:
    config = parse(f"llama-server {text}")
    assert getattr(config, field) == value
    assert build_argv(config) == split_command(f"llama-server {text}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-c 32k", "-c '32k': expected a whole number"),
        ("-c", "-c has no value"),
        ("-c -ngl", "-c '-ngl'"),
        ("-c 99999999999", "-c '99999999999'"),
        ("--ctx-size=4096", "does not take --ctx-size=VALUE"),
        ("--temp=1", "does not take --temp=VALUE"),
        ("-ctk q9_0", "-ctk 'q9_0': expected one of f16"),
        ("-sm rows", "-sm 'rows'"),
        ("-ngl most", "-ngl 'most': expected a whole number, auto or all"),
        ("-fa maybe", "-fa 'maybe'"),
        ("-fit perhaps", "-fit 'perhaps': expected on or off"),
        ("-np 0", "-np '0'"),
        ("-ts 3,x", "-ts '3,x'"),
        ("-ts 3,-1", "-ts '3,-1'"),
        ("-ts nan,1", "-ts 'nan,1'"),
        ("-ot exps", "-ot 'exps'"),
        ("-ncmoe -1", "-ncmoe '-1'"),
        ("-lm disk", "-lm 'disk'"),
        ("model.gguf", "'model.gguf' stands alone"),
    ],
)
def test_errors_name_option_and_value(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        parse(f"llama-server {text}")
    assert caught.value.hint


def test_a_typed_k_is_explained() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("llama-server -c 32k")
    assert "32768" in caught.value.hint


def test_unknown_options_stay_in_place() -> None:
    text = "llama-server --foo 1 2 -c 4096 --jinja --temp -1 --control-vector-layer-range 3 9 -ngl 9 -p '-x' --last"
    config = parse(text)
    assert build_argv(config) == split_command(text)
    changed = build_argv(config.evolve(n_ctx=8192, n_gpu_layers=None))
    assert changed == split_command(text.replace("4096", "8192").replace("-ngl 9 ", ""))


def test_editing_changes_one_argument_and_keeps_its_spelling() -> None:
    config = parse("llama-server -m a --ctx-size 4096 -nkvo -fa --no-mmap -ot a=CPU --flag -ot b=CPU -c 8192")
    assert build_argv(config.evolve(n_ctx=1024)) == split_command(
        "llama-server -m a --ctx-size 1024 -nkvo -fa --no-mmap -ot a=CPU --flag -ot b=CPU"
    )
    assert build_argv(config.evolve(kv_offload=True, flash_attn="off", load_mode="mmap")) == split_command(
        "llama-server -m a --ctx-size 4096 -kvo -fa off -lm mmap -ot a=CPU --flag -ot b=CPU -c 8192"
    )
    assert build_argv(config.evolve(override_tensor=(("c", "CPU"),)))[8:12] == ("-ot", "c=CPU", "--flag", "-c")


def test_new_settings_are_added_at_the_end_in_a_fixed_order() -> None:
    config = parse("llama-server -m a --jinja").evolve(n_gpu_layers=-1, n_ctx=2048, fit=False)
    assert build_argv(config) == split_command("llama-server -m a --jinja -c 2048 -ngl auto -fit off")


def test_switches_without_an_off_spelling_vanish() -> None:
    assert build_argv(parse("llama-server --swa-full -c 1").evolve(swa_full=False)) == ("llama-server", "-c", "1")


def test_variables_count_as_typed_and_options_win() -> None:
    env = (("LLAMA_ARG_CTX_SIZE", "4096"), ("LLAMA_ARG_N_GPU_LAYERS", "all"), ("CUDA_VISIBLE_DEVICES", "1"))
    config = parse("llama-server -c 1024", env)
    assert (config.n_ctx, config.n_gpu_layers, config.env) == (1024, -2, env)
    assert build_argv(config) == ("llama-server", "-c", "1024")
    assert build_argv(config.evolve(n_gpu_layers=5)) == ("llama-server", "-c", "1024", "-ngl", "5")


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("LLAMA_ARG_KV_OFFLOAD", "0", "kv_offload", False),
        ("LLAMA_ARG_NO_KV_OFFLOAD", "1", "kv_offload", False),
        ("LLAMA_ARG_KV_UNIFIED", "true", "kv_unified", True),
        ("LLAMA_ARG_MMAP", "0", "load_mode", "none"),
        ("LLAMA_ARG_NO_MMAP", "1", "load_mode", "none"),
        ("LLAMA_ARG_MLOCK", "1", "load_mode", "mmap+mlock"),
        ("LLAMA_ARG_SWA_FULL", "0", "swa_full", None),
        ("LLAMA_ARG_SWA_FULL", "enabled", "swa_full", True),
        ("LLAMA_ARG_NO_HOST", "1", "no_host", True),
        ("LLAMA_ARG_OVERRIDE_TENSOR", "exps=CPU", "override_tensor", (("exps", "CPU"),)),
        ("LLAMA_API_KEY", "s3cret", "api_key", "s3cret"),
        ("LLAMA_ARG_MODEL", "m.gguf", "model_path", "m.gguf"),
        ("LLAMA_ARG_MODEL_DRAFT", "d.gguf", "model_draft", "d.gguf"),
    ],
)
def test_variables(name: str, value: str, field: str, expected: object) -> None:
    config = parse_argv(("llama-server",), ((name, value),))
    assert getattr(config, field) == expected
    assert build_argv(config) == ("llama-server",)
    assert build_env(config) == ((name, value),)


def test_wrong_variables_are_named() -> None:
    with pytest.raises(ConfigError, match="LLAMA_ARG_CTX_SIZE='many'"):
        parse_argv((), (("LLAMA_ARG_CTX_SIZE", "many"),))
    with pytest.raises(ConfigError, match="LLAMA_ARG_KV_UNIFIED='maybe'"):
        parse_argv((), (("LLAMA_ARG_KV_UNIFIED", "maybe"),))


def test_variables_that_contradict_a_cleared_setting_are_dropped() -> None:
    env = (("LLAMA_ARG_CTX_SIZE", "4096"), ("LLAMA_ARG_OVERRIDE_TENSOR", "a=CPU"), ("HOME", "/h"))
    config = parse_argv(("llama-server", "-ot", "b=CPU"), env)
    assert config.override_tensor == (("a", "CPU"), ("b", "CPU"))
    assert build_env(config) == env
    changed = config.evolve(n_ctx=None, override_tensor=(("c", "CPU"),))
    assert build_env(changed) == (("HOME", "/h"),)
    assert build_argv(changed) == ("llama-server", "-ot", "c=CPU")
    more = config.evolve(override_tensor=(("a", "CPU"), ("z", "CPU")))
    assert parse_argv(build_argv(more), build_env(more)) == more


def test_program_may_be_left_out_and_old_names_are_known() -> None:
    assert parse_argv(("-c", "1")).program == "llama-server"
    assert parse_argv(("server", "-c", "1")).program == "llama-server"
    assert parse_argv(("main", "-c", "1")).program == "llama-cli"
    assert parse_argv(("./build/bin/llama-cli", "-c", "1")).program == "./build/bin/llama-cli"


def test_bench_has_its_own_spellings() -> None:
    text = "llama-bench -m a -ts 3/1 -nkvo 1 -fa 1 -b 512-2048+512 -ctk f16,q8_0 -ot 'a=CPU;b=CUDA0' -dev CUDA0/CUDA1"
    config = parse(text)
    assert config.tensor_split == (3.0, 1.0)
    assert (config.kv_offload, config.flash_attn, config.n_batch, config.cache_type_k) == (False, "on", 2048, "f16")
    assert config.override_tensor == (("a", "CPU"), ("b", "CUDA0"))
    assert config.device == ("CUDA0", "CUDA1")
    assert config.n_ctx == 512
    assert build_argv(config) == split_command(text)
    assert build_argv(config.evolve(kv_offload=True))[5:7] == ("-nkvo", "0")


@pytest.mark.parametrize(
    ("text", "n_ctx"), [("", 512), ("-p 0 -n 64", 64), ("-pg 4096,256", 4352), ("-p 100 -d 8192", 128 + 8192)]
)
def test_bench_context_is_that_of_its_largest_test(text: str, n_ctx: int) -> None:
    assert parse(f"llama-bench -m a {text}").n_ctx == n_ctx


def test_secrets_are_masked_on_request() -> None:
    config = parse(
        "llama-server --api-key hunter2 -hft tok -c 1", (("HF_TOKEN", "abc"), ("LLAMA_ARG_API_KEY_FILE", "f"))
    )
    masked = format_command(config, mask_secrets=True)
    assert masked == "HF_TOKEN=*** LLAMA_ARG_API_KEY_FILE=f llama-server --api-key *** -hft *** -c 1"
    assert "hunter2" in format_command(config)


def test_formatted_commands_are_read_back() -> None:
    config = parse_argv(("llama-server", "-m", "a b'c.gguf", "-p", "$(rm) `x` \\ \n"), (("A", "x y"),))
    again = parse(format_command(config))
    assert again == config
    assert again.layout == config.layout


def test_every_setting_has_an_option_and_every_option_a_setting() -> None:
    named = {field.name for field in fields(LaunchConfig)}
    assert {flag.field for flag in COMMON} == named - {"program", "env", "layout", "build"}
    assert {flag.field for flag in BENCH} <= named
    names = [name for flag in COMMON for name in (*flag.names, *flag.no)]
    assert len(names) == len(set(names))


words = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters=',"/;:='), min_size=1, max_size=9
)
tuples = st.lists(words, min_size=1, max_size=3).map(tuple)
ints = st.integers(-(2**31), 2**31 - 1)
counts = st.integers(0, 2**31 - 1)
layers = st.integers(-2, 500)
cache_types = st.sampled_from(CACHE_TYPES)
proportions = st.lists(st.floats(0, 1e6) | st.integers(0, 100).map(float), min_size=1, max_size=4).map(tuple)
SETTINGS = {
    "model_path": words, "hf_repo": words, "n_ctx": ints, "n_parallel": counts.filter(bool), "kv_unified":
    st.booleans(), "cache_type_k": cache_types, "cache_type_v": cache_types, "n_gpu_layers": layers, "split_mode":
    st.sampled_from(SPLIT_MODES), "tensor_split": proportions, "main_gpu": ints, "device": tuples, "n_batch": ints,
    "n_ubatch": ints, "flash_attn": st.sampled_from(("on", "off", "auto")), "kv_offload": st.booleans(),
    "op_offload": st.booleans(), "swa_full": st.just(True), "repack": st.booleans(), "load_mode":
    st.sampled_from(LOAD_MODES), "override_tensor": st.lists(st.tuples(words, words), min_size=1).map(tuple),
    "cpu_moe": st.just(True), "n_cpu_moe": counts, "fit": st.booleans(), "fit_target": st.lists(counts, min_size=1,
    max_size=3).map(tuple), "rpc": tuples, "mmproj_offload": st.booleans(), "lora": tuples, "spec_type": words,
    "warmup": st.booleans(), "host": words, "log_verbosity": ints,
}  # fmt: skip


@st.composite
def configs(draw: st.DrawFn) -> LaunchConfig:
    chosen = draw(st.lists(st.sampled_from(sorted(SETTINGS)), unique=True, max_size=8))
    return LaunchConfig(**{name: draw(SETTINGS[name]) for name in chosen})


@given(config=configs())
@settings(deadline=None)
def test_parsing_a_built_command_line_gives_the_settings_back(config: LaunchConfig) -> None:
    assert parse_argv(build_argv(config)) == config
    assert parse_argv(split_command(format_command(config))) == config


@given(typed=configs(), wanted=configs(), variables=configs())
@settings(deadline=None)
def test_edited_command_lines_say_what_was_wanted(
    typed: LaunchConfig, wanted: LaunchConfig, variables: LaunchConfig
) -> None:
    variable_of = {name: flag.env[0] for flag in COMMON if flag.env and flag.kind for name in flag.names}
    words_of = build_argv(variables)[1:]
    env = tuple((variable_of[a], b) for a, b in pairwise(words_of) if a in variable_of)
    config = parse_argv(build_argv(typed), env)
    edited = wanted.evolve(layout=config.layout, env=config.env)
    edited = edited.evolve(env=build_env(edited))
    assert parse_argv(build_argv(edited), edited.env) == edited


@given(st.lists(st.sampled_from(["-c", "-fa", "-ngl", "on", "-1", "x", "--no-mmap", "-ot", "a=b", "--", "-", "", "4"])))
def test_any_words_parse_or_raise_config_errors(tokens: list[str]) -> None:
    try:
        config = parse_argv(("llama-server", *tokens))
    except ConfigError:
        return
    assert build_argv(config) == ("llama-server", *tokens)
