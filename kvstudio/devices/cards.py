"""Well-known cards by name, with their memory."""

import re
from typing import NamedTuple


class Card(NamedTuple):
    """`gib`: sizes it is sold with, the usual one first."""

    name: str
    backend: str
    gib: tuple[int, ...]


def _cards(backend: str, maker: str, text: str) -> tuple[Card, ...]:
    cards = []
    for line in text.strip().splitlines():
        name, _, sizes = line.strip().rpartition(" ")
        cards.append(Card(f"{maker} {name}", backend, tuple(map(int, sizes.split("/")))))
    return tuple(cards)


#: Source: the makers' data sheets.
CARDS: tuple[Card, ...] = (
    *_cards("CUDA", "NVIDIA GeForce", """
        RTX 5090 32
        RTX 5080 16
        RTX 5070 Ti 16
        RTX 5070 12
        RTX 5060 Ti 16/8
        RTX 5060 8
        RTX 4090 24
        RTX 4080 SUPER 16
        RTX 4080 16
        RTX 4070 Ti SUPER 16
        RTX 4070 Ti 12
        RTX 4070 SUPER 12
        RTX 4070 12
        RTX 4060 Ti 8/16
        RTX 4060 8
        RTX 3090 Ti 24
        RTX 3090 24
        RTX 3080 Ti 12
        RTX 3080 10/12
        RTX 3070 Ti 8
        RTX 3070 8
        RTX 3060 Ti 8
        RTX 3060 12/8
        RTX 3050 8/6
        RTX 2080 Ti 11
        RTX 2080 8
        RTX 2070 8
        RTX 2060 6/12
        GTX 1660 6
        GTX 1080 Ti 11
        GTX 1080 8
        GTX 1070 8
        GTX 1060 6/3
        GTX 1050 Ti 4"""),
    *_cards("CUDA", "NVIDIA", """
        RTX PRO 6000 96
        RTX PRO 5000 48/72
        RTX PRO 4500 32
        RTX PRO 4000 24
        RTX 6000 Ada 48
        RTX 5000 Ada 32
        RTX 4500 Ada 24
        RTX 4000 Ada 20
        RTX 2000 Ada 16
        RTX A6000 48
        RTX A5000 24
        RTX A4500 20
        RTX A4000 16
        RTX A2000 12/6
        Quadro RTX 8000 48
        Quadro RTX 6000 24
        TITAN RTX 24
        B300 288
        B200 180
        GB200 186
        GH200 96/144
        GB10 128
        H200 141
        H100 80/94
        H20 96
        A100 40/80
        A800 80
        A40 48
        A30 24
        A16 16
        A10G 24
        A10 24
        A2 16
        L40S 48
        L40 48
        L20 48
        L4 24
        V100 16/32
        T4 16
        P100 16
        P40 24
        P4 8
        M40 24/12
        K80 12"""),
    *_cards("ROCm", "AMD Radeon", """
        AI PRO R9700 32
        PRO W7900 48
        PRO W7800 32/48
        PRO W6800 32
        RX 9070 XT 16
        RX 9070 16
        RX 9060 XT 16/8
        RX 7900 XTX 24
        RX 7900 XT 20
        RX 7900 GRE 16
        RX 7800 XT 16
        RX 7700 XT 12
        RX 7600 XT 16
        RX 7600 8
        RX 6950 XT 16
        RX 6900 XT 16
        RX 6800 XT 16
        RX 6800 16
        RX 6750 XT 12
        RX 6700 XT 12
        RX 6600 XT 8
        RX 6600 8
        RX 5700 XT 8
        RX 580 8/4
        VII 16"""),
    *_cards("ROCm", "AMD Instinct", """
        MI355X 288
        MI325X 256
        MI300X 192
        MI300A 128
        MI250X 128
        MI250 128
        MI210 64
        MI100 32
        MI60 32
        MI50 16/32
        MI25 16"""),
    *_cards("SYCL", "Intel Arc", """
        Pro B60 24
        Pro B50 16
        B580 12
        B570 10
        A770 16/8
        A750 8
        A580 8
        A380 6"""),
)  # fmt: skip

_NOISE = re.compile(
    r"\b(?:nvidia|geforce|amd|radeon|intel|instinct|card|cards|gpu|gpus|of|with|tesla|pcie|sxm\d?|ada generation)\b"
    r"|\([^)]*\)|[-_]"
)


def key(name: str) -> str:
    """A name for comparing: without maker and spaces."""
    return re.sub(r"\s+", "", _NOISE.sub(" ", name.lower()))


_BY_KEY = {key(card.name): card for card in CARDS}


def find_card(name: str) -> Card | None:
    """`4090`, `rtx4090`, `NVIDIA GeForce RTX 4090`; None when the name is not known."""
    wanted = key(name)
    for prefix in ("", "rtx", "gtx", "rx", "rtxpro", "arc", "quadro"):
        card = _BY_KEY.get(prefix + wanted)
        if card:
            return card
    return None
