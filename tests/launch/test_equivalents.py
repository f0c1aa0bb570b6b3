"""launch.equivalents: the settings in the words of Ollama, LM Studio and vLLM."""

import json
import shlex

from kvstudio.launch.argv import parse_argv, split_command
from kvstudio.launch.equivalents import Equivalent, equivalents


def of(text: str, n_ctx: int | None = None) -> dict[str, Equivalent]:
    found = equivalents(parse_argv(split_command(f"llama-server {text}")), "My Model", n_ctx)
    return {f"{each.program} {each.where.split()[0]}": each for each in found}


def test_all_three_are_offered_for_any_settings() -> None:
    assert list(of("")) == ["Ollama Modelfile", "Ollama variables", "LM Studio load", "vLLM command"]
    assert all(each.text.endswith("\n") or not each.text for each in of("").values())


def test_ollama() -> None:
    found = of("-m /m/a.gguf -c 32768 -np 4 -ngl all -ctk q8_0 -ctv q8_0 -b 512 -t 8 --no-mmap -fa on --port 1234")
    assert found["Ollama Modelfile"].text.splitlines() == [
        "FROM /m/a.gguf",
        "PARAMETER num_ctx 8192",
        "PARAMETER num_gpu 999",
        "PARAMETER num_batch 512",
        "PARAMETER num_thread 8",
        "PARAMETER use_mmap false",
    ]
    assert any("ollama create my-model" in note for note in found["Ollama Modelfile"].notes)
    assert found["Ollama variables"].text.splitlines() == [
        "OLLAMA_NUM_PARALLEL=4",
        "OLLAMA_CONTEXT_LENGTH=8192",
        "OLLAMA_FLASH_ATTENTION=1",
        "OLLAMA_KV_CACHE_TYPE=q8_0",
        "OLLAMA_HOST=127.0.0.1:1234",
    ]


def test_a_unified_cache_gives_each_slot_all() -> None:
    assert "PARAMETER num_ctx 32768" in of("-m a -c 32768 -np 4 -kvu")["Ollama Modelfile"].text


def test_the_models_own_context_is_used_when_none_is_typed() -> None:
    assert "num_ctx 4096" in of("-m a", n_ctx=4096)["Ollama Modelfile"].text
    assert "num_ctx" not in of("-m a")["Ollama Modelfile"].text


def test_types_that_ollama_lacks_are_said() -> None:
    server = of("-m a -ctk q5_1")["Ollama variables"]
    assert "OLLAMA_KV_CACHE_TYPE" not in server.text
    assert any("q5_1" in note for note in server.notes)
    assert any("K and V together" in note for note in of("-ctk q8_0")["Ollama variables"].notes)


def test_lm_studio() -> None:
    found = of("-m a -c 8192 -ngl 0 -ctk q8_0 -ctv q4_0 -nkvo -fa auto -lm mmap+mlock -np 2")["LM Studio load"]
    assert json.loads(found.text) == {
        "contextLength": 4096,
        "gpu": {"ratio": "off"},
        "flashAttention": True,
        "llamaKCacheQuantizationType": "q8_0",
        "llamaVCacheQuantizationType": "q4_0",
        "offloadKVCacheToGpu": False,
        "tryMmap": True,
        "keepModelInMemory": True,
    }
    assert any("Concurrent" in note for note in found.notes)
    assert any("set it to 20" in note for note in of("-ngl 20")["LM Studio load"].notes)


def test_vllm() -> None:
    found = of("-m '/m/a b.gguf' -c 32768 -np 4 -ts 3,1 -ctk q8_0 --host 0.0.0.0")["vLLM command"]
    words = shlex.split(found.text)
    assert words[:3] == ["vllm", "serve", "/m/a b.gguf"]
    pairs = dict(zip(words[3::2], words[4::2]))
    assert pairs == {
        "--max-model-len": "8192",
        "--max-num-seqs": "4",
        "--gpu-memory-utilization": "0.90",
        "--pipeline-parallel-size": "2",
        "--kv-cache-dtype": "fp8",
        "--host": "0.0.0.0",
    }
    assert any("evenly" in note for note in found.notes)
    assert any("--tensor-parallel-size" in note for note in of("-sm row")["vLLM command"].notes)


def test_settings_without_an_equivalent_are_named() -> None:
    found = of("-ot exps=CPU -ub 64 -nkvo --swa-full")
    for each in ("Ollama Modelfile", "LM Studio load", "vLLM command"):
        assert any(note.startswith("-ot:") for note in found[each].notes)
        assert any(note.startswith("--swa-full:") for note in found[each].notes)
