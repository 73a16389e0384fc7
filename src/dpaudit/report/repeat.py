"""How to do an audit again: the command where there is one, and the Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from dpaudit.report.page_data import Snippet

_LINE = 84
_PRECISION = "float32"
_FOLDER = "DIR"  # where the reader has CIFAR-10, which only the reader knows
_DELTA, _CONFIDENCE = 1e-5, 0.95  # what commands and functions take if nobody says otherwise


def repeat(
    configuration: Mapping[str, Any],
    *,
    name: str | None,
    store: str | None,
    identity: str,
    delta: float = _DELTA,
    confidence: float = _CONFIDENCE,
) -> tuple[Snippet, ...]:
    """Command, settings file and Python that play the same audit, from its stored settings.

    Arguments:
        configuration: As in `dpaudit.audits.description.describe`.
        name: What the user called the audit.
        store: The file it is kept in, if any.
        identity: Its identity there.
        delta: Of the bounds on the page.
        confidence: Of its lower bounds.
    """
    read = _unusual(delta, confidence)
    snippets = []
    if _is_a_preset(configuration):
        file = tuple(_file_only(configuration, read))
        if file:
            text = "\n".join(f"{key} = {value}" for key, value in file)
            snippets.append(Snippet(caption="Settings without an option, in audit.toml", text=text))
        arguments = list(_arguments(configuration, name=name, store=store, read=read))
        command = ["dpaudit", "audit", *(["audit.toml"] if file else []), *arguments]
        snippets.append(Snippet(caption="On the command line", text=_wrapped(command)))
    snippets.append(Snippet(caption="In Python", text=_python(configuration, name, store, read)))
    if store is not None:
        page = ["dpaudit", "report", identity[:8], f"--store {shlex.quote(store)}"]
        # Always said: left out, they would be those of the audit, which may not be the page's.
        page += [f"--delta {delta}", f"--confidence {confidence}"]
        snippets.append(Snippet(caption="This page", text=_wrapped(page)))
    return tuple(snippets)


def _unusual(delta: float, confidence: float) -> dict[str, float]:
    """At what the scores are read, where that is not the default."""
    read = {"delta": (delta, _DELTA), "confidence": (confidence, _CONFIDENCE)}
    return {key: value for key, (value, usual) in read.items() if value != usual}


def _needs_a_folder(configuration: Mapping[str, Any]) -> bool:
    """Whether the preset's data does not ship with the package."""
    return bool(configuration["mechanism"]["name"] != "housing")


def _is_a_preset(configuration: Mapping[str, Any]) -> bool:
    """Whether ``dpaudit audit`` can say all of it."""
    from dpaudit.adversaries.registry import ADVERSARIES
    from dpaudit.presets import PRESETS

    mechanism, seed = configuration["mechanism"], configuration["seed"]
    batches, start = mechanism.get("batches", {}), mechanism.get("initialisation", {})
    return (
        mechanism["name"] in PRESETS
        and mechanism.get("loss") == "dpaudit.presets.cross_entropy"
        and configuration["adversary"]["name"] in ADVERSARIES
        and configuration["insertion"].get("offset", 0) == 0
        and (batches.get("class"), batches.get("seed")) == ("FixedBatches", seed)
        and (start.get("class"), start.get("seed")) == ("FixedInitialisation", seed)
    )


def _arguments(
    configuration: Mapping[str, Any],
    *,
    name: str | None,
    store: str | None,
    read: Mapping[str, float],
) -> Iterator[str]:
    mechanism = configuration["mechanism"]
    pairs = {
        "preset": mechanism["name"],
        "adversary": configuration["adversary"]["name"],
        "runs": configuration["runs"],
        "canaries": configuration["canaries"],
        "steps": mechanism["steps"],
        "period": configuration["insertion"]["period"],
        "noise-multiplier": mechanism["noise_multiplier"],
        "clip-norm": mechanism["clip_norm"],
        "batch-size": mechanism["batches"]["batch_size"],
        "learning-rate": mechanism["learning_rate"],
        "delta": read.get("delta"),
        "seed": configuration["seed"],
        "data-dir": _FOLDER if _needs_a_folder(configuration) else None,
        "name": name,
        "store": store,
    }
    for key, value in pairs.items():
        if value is not None and (key, value) not in (("canaries", 1), ("period", 1)):
            yield f"--{key} {shlex.quote(str(value))}"


def _file_only(
    configuration: Mapping[str, Any], read: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    """Settings that differ from their defaults and have no option of their own."""
    settings = configuration["adversary"].get("settings", {})
    usual = {"simulation": "noiseless", "ranking": "per-step", "simulations": 4}
    for key, value in usual.items():
        if settings.get(key, value) != value:
            yield key, _literal(settings[key])
    horizons = [step for step in configuration["horizons"] if step != _steps(configuration)]
    if horizons:
        yield "horizons", str(horizons)
    if _precision(configuration) != _PRECISION:
        yield "precision", _literal(_precision(configuration))
    if "confidence" in read:
        yield "confidence", _literal(read["confidence"])


def _precision(configuration: Mapping[str, Any]) -> str:
    return str(configuration.get("speed", {}).get("precision", _PRECISION))


def _steps(configuration: Mapping[str, Any]) -> int:
    return int(configuration["mechanism"]["steps"])


def _wrapped(words: list[str]) -> str:
    """A command over several lines, each ended as a shell wants it."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > _LINE:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def _python(
    configuration: Mapping[str, Any],
    name: str | None,
    store: str | None,
    read: Mapping[str, float],
) -> str:
    mechanism, adversary = configuration["mechanism"], configuration["adversary"]
    if _is_a_preset(configuration):
        keys = ("steps", "learning_rate", "clip_norm", "noise_multiplier")
        given = {key: mechanism[key] for key in keys}
        given |= {"batch_size": mechanism["batches"]["batch_size"], "seed": configuration["seed"]}
        if _needs_a_folder(configuration):
            given["data_dir"] = _FOLDER
        made = [f'training = dpaudit.presets.preset("{mechanism["name"]}").training(']
        made += [f"    {key}={_literal(value)}," for key, value in given.items()]
        made.append(")")
    else:
        made = [f"training = ...  # the DPSGD of this audit; its name is {mechanism['name']!r}"]
    settings = dict(adversary.get("settings", {}))
    kind = settings.pop("class", adversary["name"])
    inside = [f"{key}={_literal(value)}" for key, value in settings.items()]
    crafts = f"    {_adversary(kind)}({', '.join(inside)}),"
    if len(crafts) > _LINE:
        spread = "".join(f"        {setting},\n" for setting in inside)
        crafts = f"    {_adversary(kind)}(\n{spread}    ),"
    options: dict[str, str] = {"runs": str(configuration["runs"])}
    if configuration["canaries"] != 1:
        options["canaries"] = str(configuration["canaries"])
    insertion = {key: value for key, value in configuration["insertion"].items() if value}
    if insertion != {"period": 1}:
        steps = ", ".join(f"{key}={value}" for key, value in insertion.items())
        options["insertion"] = f"dpaudit.Insertion({steps})"
    options |= {key: _literal(value) for key, value in read.items()}
    options["seed"] = str(configuration["seed"])
    horizons = [step for step in configuration["horizons"] if step != _steps(configuration)]
    if horizons:
        options["horizons"] = str(horizons)
    for key, value in (("name", name), ("store", store)):
        if value is not None:
            options[key] = _literal(value)
    imports = ["import dpaudit"]
    if _precision(configuration) != _PRECISION:
        imports.append("from dpaudit.games import Speed")
        options["speed"] = f"Speed(precision={_literal(_precision(configuration))})"
    return "\n".join(
        [
            *imports,
            "",
            *made,
            "result = dpaudit.audit(",
            "    training,",
            crafts,
            *(f"    {key}={value}," for key, value in options.items()),
            ")",
            'result.report("page.html")',
        ]
    )


def _adversary(kind: str) -> str:
    from dpaudit import adversaries

    return f"dpaudit.adversaries.{kind}" if hasattr(adversaries, kind) else kind


def _literal(value: Any) -> str:
    """A value as Python and TOML both write it."""
    if isinstance(value, str):
        import json

        return json.dumps(value)
    return repr(value)
