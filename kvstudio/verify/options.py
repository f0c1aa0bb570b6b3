"""What a person may choose about a test launch."""

from dataclasses import dataclass

DEFAULT_PROMPT = "Write one short sentence about the sea."


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Choices of one test launch; they never change what is launched, only how it is tried and watched.

    `n_predict`: tokens per answer. `repeat`: how often the prompt is asked again, one after the other. `concurrent`:
    requests at once, None for one per slot, 0 for none. `fill_context`: also one prompt of this share (0 to 1) of a
    slot's context. `timeout_s`: the whole launch; `phase_timeout_s`: each phase and each answer.

    `address_space_limit_bytes` sets RLIMIT_AS in the child only, before it becomes the program: the kernel then refuses
    address space beyond it, so an allocation fails as it would on a full device or a full machine, while everything
    else on the machine stays as it is. It counts mapped files and address space that is only reserved, so the figure
    has to be larger than the memory in use; None leaves the limit as inherited. Systems without RLIMIT_AS ignore it.
    """

    prompt: str = DEFAULT_PROMPT
    n_predict: int = 16
    repeat: int = 3
    concurrent: int | None = None
    fill_context: float = 0.0
    timeout_s: float | None = 1800.0
    phase_timeout_s: float | None = 600.0
    log_dir: str | None = None
    keep_running: bool = False
    address_space_limit_bytes: int | None = None
    sample_s: float = 0.25
    number: int = 0
