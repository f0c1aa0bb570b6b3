"""Ends without a reason, killed processes, and lines that look bad and are not."""

# ruff: noqa: E501
# A pattern is easier to check against the line it reads when it is not broken up.
from kvstudio.runlog.signatures.row import NUM, Kind, Signature, row

WRAPPERS: tuple[Signature, ...] = (
    row("resource_text", Kind.WRAPPER, ("resource limitations", "this may be due to resource"),
        r"model failed to load, this may be due to resource limitations", "the wrapper only says that loading failed", "Ollama", rank=3),
    row("runner_terminated", Kind.WRAPPER, ("runner process has terminated", "server process has terminated", "runner terminated",
        "runner process no longer running", "Server process terminated", "process has terminated", "llama-server process exited"),
        r"(?:runner|server)(?: process)? (?:has terminated|process has terminated|no longer running|terminated|exited)"
        r"|Server process terminated unexpectedly", "the wrapper only says that llama.cpp ended", "Ollama; text-generation-webui", rank=2),
    row("wrapper_timeout", Kind.WRAPPER, ("timed out waiting for", "timed out waiting for llama runner", "context canceled"),
        r"timed out waiting for llama runner|timed out waiting for (?:server|the server)", "the wrapper gave up waiting", "Ollama", rank=2),
    row("model_failed", Kind.WRAPPER, ("failed to load model", "error loading model", "unable to load model", "exception loading model",
        "Failed to load model", "Error loading model", "Load Text Model OK: False", "failed to load the model", "could not load model"),
        r"(?:failed to|could not) load (?:the )?model|error loading model|unable to load model|exception loading model|Failed to load (?:the )?model"
        r"|Error loading (?:the )?model|Load Text Model OK: False", "loading failed", "llama.cpp, common.cpp, tools/server", rank=1),
    row("context_failed", Kind.WRAPPER, ("create context with model", "create_context with model", "failed to initialize the context",
        "unable to create llama context", "Failed to create llama_context", "failed to create context", "failed to create llama context"),
        r"failed to create[ _]context|failed to initialize the context|unable to create llama context"
        r"|[Ff]ailed to create llama.context", "creating the context failed", "llama-context.cpp, common.cpp", rank=1),
    row("exiting", Kind.WRAPPER, ("exiting due to", "LMSTUDIO_STARTUP_ERROR", "Compute error"),
        r"exiting due to model loading error|LMSTUDIO_STARTUP_ERROR|Compute error", "the program gave up",
        "tools/server", rank=1),
    row("batch_failed", Kind.WRAPPER, ("failed to decode", "failed to allocate graph, ret"),
        r"failed to (?:decode|allocate graph), ret = -?[1-9]", "a batch could not be run", "llama-context.cpp llama_decode", rank=1),
    row("decode_failed", Kind.WRAPPER, ("llama_decode", "graph_compute", "failed to compute graph"),
        r"failed to compute graph, compute status: -?[1-9]|llama_decode\(\) failed|llama_decode returned -[1-9]|ggml_backend_sched_graph_compute_async failed",
        "running the model failed", "llama-context.cpp", rank=1, stage="decode"),
)  # fmt: skip

ENDS: tuple[Signature, ...] = (
    row("oom_kill", Kind.KILLED, "Killed process ",
        r"(?:[Oo]ut of memory|Memory cgroup out of memory): Killed process (?P<pid>\d+),? \((?P<what>[^)]+)\)",
        "the kernel ended process {pid} ({what}) because the machine or its container had no memory left", "Linux mm/oom_kill.c",
        rank=9, stage="host", cause="host_memory"),
    row("oom_unit", Kind.KILLED, ("killed by the OOM killer", "oom-kill", "OOMKilled", "invoked oom-killer", "due to memory pressure",
        "systemd-oomd killed"),
        r"killed by the OOM killer|result 'oom-kill'|oom-kill:|OOMKilled(?!\W+[Ff]alse)|invoked oom-killer"
        r"|Killed \S+ due to memory pressure|systemd-oomd killed \d+ process",
        "the process was ended for want of memory", "systemd, Docker, Kubernetes, kernel", rank=6, stage="host", cause="host_memory"),
    row("exit_137", Kind.KILLED, ("exited with code 137", "exit code 137", "exit status 137", "code: 137", "exit 137", "signal: killed",
        "signal 9", "SIGKILL", "Killed", "Code: 137", "ExitCode"),
        r"(?:exit(?:ed)?|status|[Cc]ode|ExitCode\"?)[^\d\n]{0,20}\b137\b|signal: killed|\bSIGKILL\b|^(?:\S+: line \d+: +\d+ )?Killed\b"
        r"|zsh: killed|killed by signal 9", "the process was killed from outside, as the system does when memory runs out",
        "shells, Docker", rank=5, stage="host", cause="host_memory"),
    row("terminate", Kind.CRASH, "terminate called",
        r"terminate called (?:after throwing an instance of '(?P<what>[^']+)'|without an active exception|recursively)",
        "the program ended on an exception nobody caught", "libstdc++", rank=2),
    row("segfault", Kind.CRASH, ("egmentation fault", "SIGSEGV", "ACCESS_VIOLATION", "access violation", "0xc0000005", "3221225477",
        "core dumped", "exit 139", "ExitCode", "dump\u00e9", "d\u00f6k\u00fcld\u00fc", "(core", "\u6bb5\u9519\u8bef", "Speicherzugriffsfehler"),
        r"[Ss]egmentation fault|SIGSEGV|access violation|ACCESS_VIOLATION|0xc0000005|3221225477|\(core dumped\)|exit 139|\bExitCode\W{1,4}139\b|döküldü"
        r"|段错误|Speicherzugriffsfehler|core dumped|vidage mémoire|core dumpé", "the program crashed", "shells, systemd, Windows", rank=1),
    row("abort", Kind.CRASH, ("Aborted", "SIGABRT", "Abort trap", "exit 134", "exit status 134", "code 134", "GGML_ABORT",
        "0xc0000409", "3221226505", "zsh: abort"),
        r"\bAborted\b|SIGABRT|Abort trap|(?:exit|status|code)\W{0,12}134\b|0xc0000409|3221226505|zsh: abort", "the program ended itself",
        "shells, systemd, Windows", rank=1),
    row("heap_check", Kind.CRASH, ("free(): invalid", "double free", "corrupted size", "munmap_chunk", "malloc(): "),
        r"free\(\): invalid|double free or corruption|corrupted (?:size|double)|munmap_chunk\(\)|malloc\(\): ",
        "the C library found its heap damaged while the program ended", "glibc", rank=1),
    row("backtrace", Kind.CRASH, ("goroutine ", "ggml_print_backtrace", "[New LWP ", "runtime/asm_amd64", "created by github.com/ollama"),
        r"goroutine \d+ \[|ggml_print_backtrace|\[New LWP \d+\]|runtime/asm_amd64|created by github\.com/ollama|ggml_abort",
        "a stack trace", "gdb, Go", rank=1),
    row("panic", Kind.CRASH, "panic: ", r"^panic: (?P<why>.+)", "the wrapper stopped: {why}", "Go", rank=1),
    row("exit_status", Kind.CRASH, ("exit status ", "exit code ", "exited with code ", "exit 1", "exit code: "),
        r"(?:exit(?:ed)?(?: with)? (?:status|code):? |^exit )(?P<code>-?[1-9]\d*)\b", "the program ended with status {code}", "shells, wrappers",
        rank=0),
    row("exception_text", Kind.CRASH, "what():", r"what\(\):\s*(?P<why>.+)", "the exception says: {why}", "libstdc++", rank=1),
)  # fmt: skip

HARMLESS: tuple[Signature, ...] = (
    row("gpu_unusable", Kind.HARMLESS, ("failed to initialize CUDA", "failed to initialize ROCm", "failed to initialize MUSA"),
        r"ggml_\w+: failed to initialize (?:CUDA|ROCm|MUSA): (?P<why>.*)",
        "the GPU cannot be used at all, the model goes to the CPU: {why}", "ggml-cuda.cu ggml_cuda_init", rank=5, cause="unsupported"),
    row("pinned_driver", Kind.HARMLESS, "of pinned memory: ",
        rf"failed to (?:allocate|register)\s+(?P<mib>{NUM}) Mi?B of pinned memory: (?P<why>(?!.*memory)\S.*)",
        "pinned memory was refused, and not for want of memory: {why}", "ggml-cuda.cu ggml_cuda_host_malloc", rank=5,
        backend="CUDA", cause="unsupported"),
    row("pinned", Kind.HARMLESS, "pinned memory",
        rf"failed to (?:allocate|register)\s+(?P<mib>{NUM}) Mi?B of pinned memory(?:: (?P<why>.*))?"
        r"|Failed to allocate pinned memory(?: \((?P<why2>.*)\))?",
        "page-locked host memory was refused; llama.cpp then takes ordinary memory, only slower to copy from",
        "ggml-cuda.cu, ggml-vulkan.cpp, ggml-sycl.cpp, ggml-cann.cpp host buffer types", rank=4, stage="host"),
    row("mlock", Kind.HARMLESS, ("failed to mlock", "VirtualLock", "mlock not supported"),
        r"failed to mlock (?P<bytes>\d+)-byte buffer|failed to VirtualLock|mlock not supported",
        "the model could not be locked in RAM; it is used all the same", "llama-mmap.cpp llama_mlock", rank=3),
    row("pool_flush", Kind.HARMLESS, "cached buffers and retrying",
        rf"alloc of (?P<mib>{NUM}) MiB failed, flushing", "the pool emptied its cache and asked again", "ggml-cuda.cu", rank=2),
    row("fallback_alloc", Kind.HARMLESS, ("using host memory fallback", "skipping reorder", "CL_MEM_ALLOC_HOST_PTR fallback",
        "falling back to CPU", "falling back to heap"),
        r"using host memory fallback|skipping reorder|CL_MEM_ALLOC_HOST_PTR fallback|falling back to (?:CPU|heap)",
        "another kind of memory was used instead", "ggml-sycl.cpp, ggml-opencl.cpp", rank=2),
    row("prompt_cache", Kind.HARMLESS, ("prompt cache state", "exceeds cache size limit"),
        r"failed to allocate memory for prompt cache state|exceeds cache size limit",
        "a prompt was not kept for reuse; requests still work", "server-task.cpp", rank=2, stage="host"),
    row("zero_buffer", Kind.HARMLESS, " of size 0", r"(?:buffer|allocation) of size 0\b", "an empty request, of no consequence",
        "ggml-alloc.c, ggml-vulkan-buffers.cpp", rank=1),
    row("zero_bytes", Kind.HARMLESS, "allocating 0 bytes", r"allocating 0 bytes for ggml_", "an empty request, of no consequence", "ggml.c",
        rank=1),
    row("zero_cuda", Kind.HARMLESS, "allocating ", r"allocating\s+0\.00 MiB on device", "an empty request, of no consequence",
        "ggml-cuda.cu", rank=1),
    row("working_set_warning", Kind.HARMLESS, "greater than the recommended max working set",
        r"warning: current allocated size is greater than the recommended max working set",
        "macOS recommends less for the GPU; it may still work", "ggml-metal-device.m", rank=2),
    row("graph_growth", Kind.HARMLESS, "failed to allocate graph, reserving",
        r"failed to allocate graph, reserving", "the graph buffer is grown, a normal step", "ggml-backend.cpp", rank=1),
)  # fmt: skip
