"""Errors a person should read: what and where, and what to do next."""


class KvStudioError(Exception):
    """An expected failure; `message` says what and where, `hint` what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class HeaderError(KvStudioError):
    """Not a GGUF file, or one whose header cannot be read."""


class ConfigError(KvStudioError):
    """A command line or setting that cannot be understood."""


class ProbeError(KvStudioError):
    """A device source that did not answer."""


class LaunchError(KvStudioError):
    """A binary that is missing or cannot be run."""


class StoreError(KvStudioError):
    """A file of ours that could not be read or saved."""
