"""Which llama.cpp builds' rules are known, and what differs between them."""

#: Builds whose source the rules were read from, oldest first.
KNOWN = (10434, 11434)
NEWEST = KNOWN[-1]

#: First build known to feed tokens and embeddings in one batch.
MIXED_BATCH = 11434
#: First build known to have an MTP graph for these; before, the caches cover their MTP blocks.
MTP_GRAPHS = 11434
_LATE_MTP_GRAPHS = frozenset({"glm4moe", "deepseek2", "mistral4", "cohere2moe"})
#: First build known to leave the joined gate and up experts of a skipped MTP block in the file.
MTP_SKIPS_JOINED_EXPERTS = 11434
#: First build known whose --fit gives every slot of a split pool the whole trained context when -c is not typed.
FIT_PER_STREAM = 11434
#: First build known whose Vulkan reads weights of type TQ1_0.
VULKAN_TQ1 = 11434
#: First build known to abort over a graph for one sequence in several streams.
ONE_SEQUENCE_RESERVES = 11434
#: First build known to replace --no-mmap, --mlock and --direct-io by --load-mode.
LOAD_MODE = 11434


def resolve(*wanted: int | None) -> int:
    """The first build that is given, else the newest known."""
    return next((build for build in wanted if build), NEWEST)


def note(build: int) -> str | None:
    """What to say about a build whose source was not read."""
    if build in KNOWN:
        return None
    if build < KNOWN[0]:
        return f"the rules of builds before b{KNOWN[0]} were not read; b{build} may differ."
    nearest = max(known for known in KNOWN if known <= build)
    return f"b{build} is taken to follow the rules of b{nearest}."


def follows(build: int, since: int) -> bool:
    """Whether `build` has what came with build `since`; a build between two known ones follows the older."""
    return build >= since


def has_mtp_graph(build: int, architecture: str) -> bool:
    """Whether `build` can run the MTP blocks of an architecture that has such a graph in the newest build."""
    return follows(build, MTP_GRAPHS) or architecture not in _LATE_MTP_GRAPHS
