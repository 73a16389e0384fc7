"""Text as token sequences for language models: a file of yours, or a generated text."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit.data.examples import Examples
from dpaudit.data.folder import DataDir, data_folder
from dpaudit.errors import InvalidInput

BYTES = 256
"""Number of different tokens of a text that is read byte by byte."""

GENERATED = "generated-text"
"""Name of the generated text."""

_GRAMMAR = {
    "sentence": (
        "the {noun} {verb} the {noun}.",
        "a {noun} {verb} {place}.",
        "{sentence} {sentence}",
    ),
    "noun": ("{adjective} {noun}", "river", "engineer", "letter", "garden", "model", "harbour"),
    "adjective": ("quiet", "second", "private", "northern", "small", "careful"),
    "verb": ("finds", "describes", "crosses", "answers", "measures", "forgets"),
    "place": ("near the {noun}", "before winter", "without the {noun}", "in {year}"),
    "year": tuple(str(year) for year in range(1900, 2000)),
}


def generated_text(characters: int, *, seed: int = 0) -> str:
    """English sentences drawn from a small grammar, at least ``characters`` long.

    Example:
        >>> len(generated_text(1000)) >= 1000
        True
    """
    return _generated(_validate.integer("characters", characters, at_least=1), _validate.seed(seed))


@lru_cache(maxsize=2)
def _generated(characters: int, seed: int) -> str:
    """Remembered, because a mebibyte takes a second."""
    random = np.random.default_rng(seed)
    sentences, length = [], 0
    while length < characters:
        sentences.append(_expand("{sentence}", random, depth=0))
        length += len(sentences[-1]) + 1
    return " ".join(sentences)


def token_sequences(tokens: ArrayLike, *, length: int, vocabulary: int, name: str) -> Examples:
    """Consecutive sequences of ``length`` tokens, each with the next token as target.

    Example:
        >>> data = token_sequences(range(10), length=4, vocabulary=10, name="count")
        >>> data.features.tolist(), data.targets.tolist()
        ([[0, 1, 2, 3], [4, 5, 6, 7]], [[1, 2, 3, 4], [5, 6, 7, 8]])
    """
    row = np.asarray(tokens, dtype=np.int64)
    _validate.integer("length", length, at_least=1)
    count = (len(row) - 1) // length
    if count < 1:
        raise InvalidInput(f"tokens must be more than the length ({length}), got {len(row)}")
    return Examples(
        features=row[: count * length].reshape(count, length).copy(),
        targets=row[1 : count * length + 1].reshape(count, length).copy(),
        classes=vocabulary,
        name=name,
    )


def read_text(data_dir: DataDir, *, characters: int) -> tuple[str, str]:
    """The text of ``text.txt`` in a folder, or a generated text, with a short name."""
    folder = data_folder(data_dir)
    if folder is not None and (folder / "text.txt").is_file():
        return (folder / "text.txt").read_text(encoding="utf8")[:characters], "text.txt"
    return generated_text(characters)[:characters], GENERATED


def byte_sequences(data_dir: DataDir, *, length: int, characters: int) -> Examples:
    """The text of a folder, or a generated one, byte by byte in sequences of ``length``."""
    text, name = read_text(data_dir, characters=characters)
    tokens = np.frombuffer(text.encode(), dtype=np.uint8)
    return token_sequences(tokens, length=length, vocabulary=BYTES, name=name)


def _expand(pattern: str, random: np.random.Generator, depth: int) -> str:
    """Replace every word in braces by one of its choices; the first is recursive."""
    before, _, rest = pattern.partition("{")
    if not rest:
        return before
    word, _, after = rest.partition("}")
    choices = _GRAMMAR[word][1 if depth > 3 and word == "noun" else 0 :]
    if depth > 3 and word == "sentence":
        choices = choices[:2]
    chosen = choices[int(random.integers(len(choices)))]
    return before + _expand(chosen, random, depth + 1) + _expand(after, random, depth)
