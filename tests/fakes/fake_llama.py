#!/usr/bin/env python3
# ruff: noqa: E501 - log lines are as long as they are
"""A stand-in for llama-server: answers --version, --help and --list-devices, replays a log and serves HTTP.

Everything is steered by variables, so that the command line stays one that a real server would take:

FAKE_LLAMA_LOG          log file to replay on stderr instead of the built-in one
FAKE_LLAMA_LINE_DELAY   seconds between lines (0)
FAKE_LLAMA_GROUP        lines of the replay written at once, with the delay after each group (1)
FAKE_LLAMA_EXIT         exit with this code after the replay
FAKE_LLAMA_SILENCE      `LINE:SECONDS`, print nothing for so long after that line of the replay
FAKE_LLAMA_SIGNAL       raise this signal number after the replay
FAKE_LLAMA_HANG         sleep for ever after that many lines of the replay
FAKE_LLAMA_IGNORE_TERM  ignore SIGTERM and SIGINT
FAKE_LLAMA_GRANDCHILD   file for the process ids of two grandchildren, one of which leaves the session
FAKE_LLAMA_BROKEN       how requests fail: `hang`, `error`, `empty`, `die` (exit on the first generation),
                        `blind` (no answer to a picture), `garbage` (the model writes no text unless held to a grammar)
FAKE_LLAMA_DIE_AFTER    exit with code 1 after that many answered generations
FAKE_LLAMA_FLOOD        bytes of output to write as fast as possible
FAKE_LLAMA_LOAD_DELAY   seconds between listening and being ready (503 before)
FAKE_LLAMA_SENSES       what it takes besides text, apart by commas (`vision`); `unknown` to say nothing of it
FAKE_LLAMA_BATCH        tokens that an embedding or ranking may have at most
FAKE_LLAMA_FLAGS        the text of --help
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HELP = """----- common params -----
-h,    --help, --usage                  print usage and exit
--version                               show version and build info
-m,    --model FNAME                    model path to load
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
-b,    --batch-size N                   logical maximum batch size (default: 2048)
-ub,   --ubatch-size N                  physical maximum batch size (default: 512)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use (default: 'auto')
-ctk,  --cache-type-k TYPE              KV cache data type for K (default: f16)
-ctv,  --cache-type-v TYPE              KV cache data type for V (default: f16)
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM (default: auto)
-fit,  --fit [on|off]                   whether to adjust unset arguments to fit in device memory (default: 'on')
-lv,   --verbosity, --log-verbosity N   Set the verbosity threshold (default: 3)
--list-devices                          print list of available devices and exit
----- server params -----
--host HOST                             ip address to listen (default: 127.0.0.1)
--port PORT                             port to listen (default: 8080)
-np,   --parallel N                     number of server slots (default: -1, -1 = auto)
"""


def number(name, default=None):
    text = os.environ.get(f"FAKE_LLAMA_{name}")
    return default if text is None else float(text)


def option(*names, default=None):
    for i, word in enumerate(sys.argv[:-1]):
        if word in names:
            return sys.argv[i + 1]
    return default


def built_in_log():
    n_ctx = int(option("-c", "--ctx-size", default="4096")) or 32768
    n_parallel = max(1, int(option("-np", "--parallel", default="1")))
    model = option("-m", "--model", default="")
    kv = n_ctx * 18 * 2 * 256 * 2 / 1048576
    fit = "off" if option("-fit", "--fit") == "off" else "on"
    lines = [
        "cmn  common_param: common_params_print_info: build 10434 (7e4c0a9) with GNU 11.4.0 for Linux x86_64",
        "cmn  common_param: common_params_print_info: verbosity = 4 (adjust with the `-lv N` CLI arg)",
        "cmn  common_param: device_info:",
        "cmn  common_param:   - Vulkan0 : fake device (2048 MiB, 2048 MiB free)",
        "cmn  common_param:   - CPU     : fake processor (24105 MiB, 24105 MiB free)",
        f"srv    load_model: loading model '{model}'",
    ]
    if fit == "on":
        lines += [
            "cmn  common_init_: fitting params to device memory ...",
            "common_params_fit_impl: getting device memory data for initial parameters:",
            "common_memory_breakdown_print: | memory breakdown [MiB]    | total   free    self   model   context   compute    unaccounted |",
            "common_memory_breakdown_print: |   - Vulkan0 (fake device) |  2048 = 2048 + (  80 =    35 +      11 +      33) +         -80 |",
            "common_memory_breakdown_print: |   - Host                  |                  184 =   170 +       0 +      14                |",
            "common_fit_params: successfully fit params to free device memory",
        ]
    lines += [
        "load_tensors: loading model tensors, this can take a while... (load_mode = mmap)",
        "load_tensors: offloading output layer to GPU",
        "load_tensors: offloaded 19/19 layers to GPU",
        "load_tensors:   CPU_Mapped model buffer size =   170.00 MiB",
        "load_tensors:      Vulkan0 model buffer size =    65.16 MiB",
        "llama_context: constructing llama_context",
        f"llama_context: n_seq_max             = {n_parallel}",
        f"llama_context: n_ctx                 = {n_ctx}",
        f"llama_context: n_ctx_seq             = {n_ctx // n_parallel}",
        "llama_context: n_batch               = 2048",
        "llama_context: n_ubatch              = 512",
        "llama_context: Vulkan_Host  output buffer size =     1.00 MiB",
        f"llama_kv_cache:    Vulkan0 KV buffer size = {kv:8.2f} MiB",
        f"llama_kv_cache: size = {kv:7.2f} MiB ({n_ctx:6d} cells,  18 layers,  {n_parallel}/1 seqs), K (f16): {kv / 2:7.2f} MiB, V (f16): {kv / 2:7.2f} MiB",
        "sched_reserve: reserving ...",
        "sched_reserve:    Vulkan0 compute buffer size =    33.57 MiB",
        "sched_reserve: Vulkan_Host compute buffer size =    14.59 MiB",
        "sched_reserve: graph splits = 4",
        "cmn  common_init_: warming up the model with an empty run - please wait ... (--no-warmup to disable)",
        "srv  llama_server: model loaded",
        f"srv  llama_server: listening on http://127.0.0.1:{option('--port', default='8080')}",
    ]
    return [f"0.00.{i:03d}.000 I {line}\n".encode() for i, line in enumerate(lines)]


def replay():
    path = os.environ.get("FAKE_LLAMA_LOG")
    if path:
        with open(path, "rb") as file:
            lines = file.readlines()
    else:
        lines = built_in_log()
    silence = os.environ.get("FAKE_LLAMA_SILENCE", "").split(":") if os.environ.get("FAKE_LLAMA_SILENCE") else None
    delay, hang = number("LINE_DELAY", 0.0), number("HANG")
    group = int(number("GROUP", 1))
    if group > 1:
        lines = [b"".join(lines[i : i + group]) for i in range(0, len(lines), group)]
    for i, line in enumerate(lines):
        if hang is not None and i >= hang:
            break
        os.write(2, line)
        if silence and i + 1 == int(silence[0]):
            time.sleep(float(silence[1]))
        if delay:
            time.sleep(delay)
    if hang is not None:
        while True:
            time.sleep(3600)


class Handler(BaseHTTPRequestHandler):
    answered = 0
    lock = threading.Lock()
    ready_at = float("inf")

    def log_message(self, *_):
        pass

    def do_GET(self):
        if time.monotonic() < Handler.ready_at:
            self.reply(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
        elif self.path == "/health":
            self.reply(200, {"status": "ok"})
        elif self.path == "/props":
            senses = os.environ.get("FAKE_LLAMA_SENSES", "").split(",")
            props = {
                "default_generation_settings": {"n_ctx": 4096},
                "total_slots": int(option("-np", "--parallel", default="1")),
            }
            if senses != ["unknown"]:
                props["modalities"] = {name: name in senses for name in ("vision", "audio")}
            self.reply(200, props)
        else:
            self.reply(404, {"error": {"code": 404, "message": "File Not Found"}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        broken = os.environ.get("FAKE_LLAMA_BROKEN")
        if broken == "hang":
            time.sleep(3600)
        if broken == "die":
            os.write(2, b"0.01.000.000 E fatal: device lost\n")
            os._exit(1)
        if broken == "error":
            self.reply(500, {"error": {"code": 500, "message": "Compute error.", "type": "server_error"}})
            return
        if broken == "garbage" and self.path == "/completion" and "grammar" not in asked:
            says = "The model produced output that does not match the expected Content-only format"
            self.reply(500, {"error": {"code": 500, "message": says, "type": "server_error"}})
            return
        with Handler.lock:
            Handler.answered += 1
            answered = Handler.answered
        limit = number("DIE_AFTER")
        if limit is not None and answered > limit:
            os._exit(1)
        batch, size = number("BATCH"), n_tokens(asked.get("content") or asked.get("documents", [""])[0])
        if batch is not None and size > batch and self.path in ("/embedding", "/rerank"):
            says = f"input ({size} tokens) is too large to process. increase the physical batch size (current batch size: {int(batch)})"
            self.reply(500, {"error": {"code": 500, "message": says, "type": "server_error"}})
            return
        if self.path in ("/embedding", "/embeddings", "/v1/embeddings"):
            self.reply(200, {"data": [{"index": 0, "embedding": [0.1, 0.2]}], "object": "list"})
        elif self.path in ("/rerank", "/v1/rerank"):
            self.reply(200, {"results": [{"index": 0, "relevance_score": 0.5}]})
        elif self.path == "/tokenize":
            self.reply(200, {"tokens": list(range(n_tokens(str(asked.get("content", "")))))})
        elif self.path == "/v1/chat/completions":
            parts = asked["messages"][0]["content"]
            seen = any(part["type"] == "image_url" for part in parts) and broken != "blind"
            usage = {"completion_tokens": asked["n_predict"] if seen else 0, "prompt_tokens": 100}
            self.reply(200, {"choices": [{"message": {"role": "assistant", "content": "a ramp"}}], "usage": usage})
        else:
            content = "" if broken == "empty" else " and so on"
            tokens = 0 if broken == "empty" else int(asked.get("n_predict", 4))
            evaluated = n_tokens(asked.get("prompt", ""))
            self.reply(200, {"content": content, "tokens_predicted": tokens, "tokens_evaluated": evaluated,
                             "stop": True, "truncated": False})  # fmt: skip

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def n_tokens(prompt):
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def spawn_grandchildren(path):
    sleeper = [sys.executable, "-c", "import time; time.sleep(3600)"]
    near = subprocess.Popen(sleeper)
    far = subprocess.Popen(sleeper, start_new_session=True)
    with open(path + ".new", "w") as file:
        file.write(f"{near.pid} {far.pid}")
    os.replace(path + ".new", path)


def main():
    if "--version" in sys.argv:
        sys.stderr.write("version: 10434 (7e4c0a9)\nbuilt with GNU 11.4.0 for Linux x86_64\n")
        return 0
    if "--help" in sys.argv or "-h" in sys.argv:
        sys.stdout.write(os.environ.get("FAKE_LLAMA_FLAGS", HELP))
        return 0
    if "--list-devices" in sys.argv:
        sys.stdout.write("Available devices:\n  Vulkan0: fake device (2048 MiB, 2048 MiB free)\n")
        return 0
    stopped = threading.Event()
    stop_signal = signal.SIG_IGN if os.environ.get("FAKE_LLAMA_IGNORE_TERM") else lambda *_: stopped.set()
    if (number("LINE_DELAY") is None and number("HANG") is None) or os.environ.get("FAKE_LLAMA_IGNORE_TERM"):
        signal.signal(signal.SIGTERM, stop_signal)
        signal.signal(signal.SIGINT, stop_signal)
    if os.environ.get("FAKE_LLAMA_GRANDCHILD"):
        spawn_grandchildren(os.environ["FAKE_LLAMA_GRANDCHILD"])
    flood = int(number("FLOOD", 0))
    while flood > 0:
        flood -= os.write(1, b"x" * min(flood, 65535) + b"\n")
    server = None
    exits = any(os.environ.get(f"FAKE_LLAMA_{name}") for name in ("EXIT", "SIGNAL", "HANG"))
    port = option("--port")
    if port and not exits:
        try:
            server = Server(("127.0.0.1", int(port)), Handler)
        except OSError:
            os.write(2, b"E couldn't bind HTTP server socket, hostname: 127.0.0.1, port: " + port.encode() + b"\n")
            return 1
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    replay()
    Handler.ready_at = time.monotonic() + number("LOAD_DELAY", 0.0)
    code = number("EXIT")
    if number("SIGNAL") is not None:
        os.kill(os.getpid(), int(number("SIGNAL")))
        time.sleep(60)
    if code is not None:
        return int(code)
    while not stopped.wait(0.1):
        pass
    os.write(2, b"0.09.000.000 I srv    operator(): operator(): cleaning up before exit...\n")
    if server is not None:
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
