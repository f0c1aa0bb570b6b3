"""launch.words and launch.wrappers: the command in what people paste."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.errors import ConfigError
from kvstudio.launch.argv import parse_argv, split_command

PLAIN = ("llama-server", "-m", "a b.gguf", "-c", "4096")


@pytest.mark.parametrize(
    "text",
    [
        "llama-server -m 'a b.gguf' -c 4096",
        'llama-server -m "a b.gguf" -c 4096',
        "llama-server -m a\\ b.gguf -c 4096",
        "$ llama-server -m 'a b.gguf' -c 4096\n",
        "me@box:~/llama$ llama-server -m 'a b.gguf' -c 4096",
        "(venv) $ llama-server -m 'a b.gguf' -c 4096",
        "llama-server \\\n  -m 'a b.gguf' \\\n  -c 4096",
        "llama-server \\\r\n  -m 'a b.gguf' \\\r\n  -c 4096\r\n",
        'llama-server ^\n  -m "a b.gguf" ^\n  -c 4096',
        'llama-server `\n  -m "a b.gguf" `\n  -c 4096',
        "llama-server -m 'a b.gguf' -c 4096 # a comment",
        "# start it\nllama-server -m 'a b.gguf' -c 4096",
        "llama-server -m 'a b.gguf' -c 4096 2>&1 | tee log.txt",
        "llama-server -m 'a b.gguf' -c 4096 > log.txt 2> /dev/null &",
        "llama-server -m 'a b.gguf' -c 4096 &> log.txt",
        "cd /opt && llama-server -m 'a b.gguf' -c 4096; echo done",
        "git pull\ncmake --build build\nllama-server -m 'a b.gguf' -c 4096",
    ],
)
def test_one_command_is_found(text: str) -> None:
    assert split_command(text) == PLAIN


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=1 B='x y' llama-cli", ("A=1", "B=x y", "llama-cli")),
        ("export A=1\nllama-cli", ("A=1", "llama-cli")),
        ("set A=1\nllama-cli.exe", ("A=1", "llama-cli.exe")),
        ('$env:A = "1"\n.\\llama-cli.exe', ("A=1", ".\\llama-cli.exe")),
        ("$env:A=1; .\\llama-cli.exe", ("A=1", ".\\llama-cli.exe")),
        ("PS C:\\x> .\\llama-cli.exe -m C:\\m\\a.gguf", (".\\llama-cli.exe", "-m", "C:\\m\\a.gguf")),
        ('llama-cli -p "a \\"b\\" $x"', ("llama-cli", "-p", 'a "b" $x')),
        ("llama-cli -p 'a|b' -r ';'", ("llama-cli", "-p", "a|b", "-r", ";")),
        ("llama-cli -p ''", ("llama-cli", "-p", "")),
        ('llama-cli -m "C:\\a b\\c.gguf"', ("llama-cli", "-m", "C:\\a b\\c.gguf")),
        ("llama-cli -p a#b", ("llama-cli", "-p", "a#b")),
    ],
)
def test_words(text: str, words: tuple[str, ...]) -> None:
    assert split_command(text) == words


@pytest.mark.parametrize("text", ["", "  \n", "# only a comment"])
def test_no_command_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="no command"):
        split_command(text)


def test_open_quotes_are_said() -> None:
    with pytest.raises(ConfigError, match="quote ' at character 10 is not closed"):
        split_command("llama -m 'x")


@given(st.text(max_size=80))
def test_any_text_splits_or_raises_config_errors(text: str) -> None:
    try:
        assert split_command(text)
    except ConfigError as error:
        assert error.hint


@pytest.mark.parametrize(
    "prefix",
    [
        "sudo",
        "sudo -u me",
        "sudo -E env A=1",
        "nohup",
        "time",
        "nice -n 5",
        "numactl --interleave=all",
        "numactl -N 0 -m 0",
        "taskset -c 0-7",
        "timeout 60",
        "gdb --args",
        "exec",
        "nohup env A=1 nice -n 5",
    ],
)
def test_wrappers_are_taken_off(prefix: str) -> None:
    config = parse_argv(split_command(f"{prefix} ./llama-server -c 4096"))
    assert (config.program, config.n_ctx) == ("./llama-server", 4096)
    assert config.env == ((("A", "1"),) if "A=1" in prefix else ())


def test_variables_of_all_places_are_joined() -> None:
    config = parse_argv(split_command("export A=1\nB=2 env C=3 llama-server -c 1"), (("A", "0"), ("D", "4")))
    assert dict(config.env) == {"A": "1", "B": "2", "C": "3", "D": "4"}


@pytest.mark.parametrize(
    ("image", "program"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", "llama-server"),
        ("ghcr.io/ggml-org/llama.cpp:light", "llama-cli"),
        ("ghcr.io/ggml-org/llama.cpp:full --server", "llama-server"),
        ("ghcr.io/ggml-org/llama.cpp:full-cuda --run", "llama-cli"),
        ("localhost:5000/mine:latest /app/llama-server", "/app/llama-server"),
        ("--entrypoint /app/llama-bench mine", "/app/llama-bench"),
    ],
)
def test_containers(image: str, program: str) -> None:
    text = (
        "docker run --rm -it --gpus all -p 8080:8080 --shm-size=1g -v /home/me/models:/models:ro -e LLAMA_ARG_N_BATCH=1"
        f" -e LLAMA_ARG_UBATCH=64 {image} -m /models/x.gguf -ngl 9"
    )
    config = parse_argv(split_command(text))
    assert (config.program, config.n_gpu_layers) == (program, 9)
    assert config.model_path == "/home/me/models/x.gguf"
    assert dict(config.env)["LLAMA_ARG_UBATCH"] == "64"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("ExecStart=/usr/bin/llama-server -c 4096", "/usr/bin/llama-server"),
        ("bash -c 'ulimit -v 9000000; exec llama-server -c 4096'", "llama-server"),
        ("A=1 sh -c 'llama-server -c 4096'", "llama-server"),
        ("ssh box ./llama-server -c 4096", "./llama-server"),
        ("srun --gres=gpu:1 -n 2 llama-server -c 4096", "llama-server"),
        ("llama serve -c 4096", "llama-server"),
        ("./my-own-build -c 4096", "./my-own-build"),
    ],
)
def test_other_ways_to_start(text: str, program: str) -> None:
    config = parse_argv(split_command(text))
    assert (config.program, config.n_ctx) == (program, 4096)


@pytest.mark.parametrize(
    "text", ["ollama run llama3", "python3 -m llama_cpp.server --n_ctx 1", "./koboldcpp --model x.gguf", "vllm serve x"]
)
def test_programs_of_others_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a program of llama"):
        parse_argv(split_command(text))


def test_mounts_and_longer_volumes_win() -> None:
    text = (
        "podman run -v /a:/m -v /b:/m/deep --mount type=bind,source=/c,target=/n llama.cpp:server -m {} -mm /n/p.gguf"
    )
    config = parse_argv(split_command(text.format("/m/deep/x.gguf")))
    assert (config.model_path, config.mmproj) == ("/b/x.gguf", "/c/p.gguf")
    assert parse_argv(split_command(text.format("/m/x.gguf"))).model_path == "/a/x.gguf"
    assert parse_argv(split_command(text.format("/mm/x.gguf"))).model_path == "/mm/x.gguf"
