"""Language modelling: a GPT of ten million parameters on the bytes of a text.

The text is ``text.txt`` in the data folder, or generated.
"""

from __future__ import annotations

from dpaudit.data import Examples
from dpaudit.data.folder import DataDir
from dpaudit.data.text import GENERATED, byte_sequences
from dpaudit.presets.base import Preset, model_named

LENGTH, CHARACTERS = 128, 2**20


def read_bytes(data_dir: DataDir) -> Examples:
    """Sequences of 128 bytes, 8,191 of them for a text of a mebibyte."""
    return byte_sequences(data_dir, length=LENGTH, characters=CHARACTERS)


GPT = Preset(
    name="gpt",
    summary="GPT of 10.8 million parameters on the bytes of a text",
    read=read_bytes,
    model_for=model_named("gpt"),
    batch_size=64,
    learning_rate=0.1,
    noise_multiplier=1.0,
    adversary="random-dimension",
    stand_in=GENERATED,
)
