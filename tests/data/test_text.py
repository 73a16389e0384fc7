"""Text as sequences of tokens."""

from pathlib import Path

import numpy as np
import pytest

from dpaudit.data.text import byte_sequences, generated_text, token_sequences
from dpaudit.errors import InvalidInput


def test_a_text_in_the_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcdefghij" * 10, encoding="utf8")
    data = byte_sequences(tmp_path, length=5, characters=50)
    assert data.name == "text.txt"
    assert bytes(data.features[0].astype(np.uint8)) == b"abcde"
    assert bytes(data.targets[0].astype(np.uint8)) == b"bcdef"


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="tokens must be more than the length"):
        token_sequences([1, 2], length=4, vocabulary=3, name="x")
    with pytest.raises(InvalidInput, match="characters"):
        generated_text(0)
