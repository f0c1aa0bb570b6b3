"""kvstudio-cli fix without a launch: rows, words, JSON and exit code say the same."""

import json

import pytest

from kvstudio.cli.main import main
from tests.cli.test_commands import TINY

BASE = ("llama-server", "-m", TINY, "-np", "1", "-ngl", "99")


@pytest.mark.parametrize(
    ("devices", "settings", "code", "outcome", "says"),
    [
        (("CUDA0=64GiB",), ("-c", "4096"), 0, "stopped", "fits as it is"),
        (("CUDA0=64MiB",), ("-c", "65536"), 0, "stopped", "instead of -c 65536"),
        (("CUDA0=64GiB",), ("-c", "2048", "-ctk", "q8_0"), 0, "stopped", "fits without -ctk q8_0"),
        (("CUDA0=1MiB", "Host=1MiB"), ("-c", "65536", "--no-mmap"), 3, "no_fit", "at least"),
    ],
)
def test_a_dry_run_expects_and_claims_no_launch(capsys, devices, settings, code, outcome, says):
    words = ["fix", "--dry-run", *(word for each in devices for word in ("--device", each))]
    assert main([*words, "--json", "--", *BASE, *settings]) == code
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["predicted"], found["launches"]) == (outcome, True, 0)
    assert found["root_cause"] is None
    assert (found["command"] is not None) == (code == 0)
    assert says in found["says"]
    assert main([*words, "--", *BASE, *settings]) == code
    text = " ".join(capsys.readouterr().out.split())
    assert says in text
    assert "Nothing was launched" in text
    assert "verified" not in text
