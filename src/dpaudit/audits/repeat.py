"""Commands and Python code that repeat an audit, derived from its description."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from dpaudit import adversaries
from dpaudit.adversaries import ADVERSARIES
from dpaudit.audits.description import DescribedMechanism, DescribedTraining, Description
from dpaudit.presets import PRESETS
from dpaudit.report.data import Snippet

_LINE = 84
_FOLDER = "DIR"  # only the reader knows the folder of CIFAR-10
_DELTA, _CONFIDENCE = 1e-5, 0.95


def repeat(
    description: Description,
    *,
    name: str | None,
    store: str | None,
    identity: str,
    delta: float = _DELTA,
    confidence: float = _CONFIDENCE,
) -> tuple[Snippet, ...]:
    """A command, a settings file if one is needed, and Python code.

    Arguments:
        description: The audit.
        name: The name of the audit.
        store: The file in which it is kept, if any.
        identity: Its identity there.
        delta: Delta of the bounds on the page.
        confidence: Confidence of the lower bounds on the page.
    """
    read = {"delta": (delta, _DELTA), "confidence": (confidence, _CONFIDENCE)}
    unusual = {key: value for key, (value, usual) in read.items() if value != usual}
    kept = {key: value for key, value in (("name", name), ("store", store)) if value is not None}
    training = description.training
    snippets = list(
        _mechanism_snippets(description, unusual, kept)
        if training is None
        else _training_snippets(description, training, kept)
    )
    if store is not None:
        page = ["dpaudit", "report", identity[:8], f"--store {shlex.quote(store)}"]
        # Always given: the defaults are those of the audit, which may differ from the page's.
        page += [f"--delta {delta}", f"--confidence {confidence}"]
        snippets.append(Snippet(caption="This page", text=_wrapped(page)))
    return tuple(snippets)


def _mechanism_snippets(
    description: Description, read: Mapping[str, float], kept: Mapping[str, str]
) -> Iterator[Snippet]:
    preset = _preset_of(description)
    if preset is not None:
        file = tuple(_file_only(description))
        if file:
            text = "\n".join(f"{key} = {_literal(value)}" for key, value in file)
            yield Snippet(caption="Settings without an option, in audit.toml", text=text)
        command = ["dpaudit", "audit", *(["audit.toml"] if file else [])]
        command += _options({**_preset_options(description, preset, read), **kept})
        yield Snippet(caption="On the command line", text=_wrapped(command))
    yield Snippet(caption="In Python", text=_audit_code(description, preset, read, kept))


def _preset_of(description: Description) -> DescribedMechanism | None:
    """The training, if ``dpaudit audit`` has options for all of the audit; otherwise `None`."""
    mechanism, insertion, seed = description.mechanism, description.insertion, description.seed
    if not isinstance(mechanism, DescribedMechanism) or mechanism.name not in PRESETS:
        return None
    batches, start = mechanism.batches, mechanism.initialisation
    loss = PRESETS[mechanism.name].loss
    known = (
        mechanism.loss == f"{loss.__module__}.{loss.__qualname__}"
        and not set(mechanism.further) - {"step_lipschitz"}
        and description.adversary.name in ADVERSARIES
        and (insertion is None or insertion.phase is not None)
        and (batches.get("class"), batches.get("seed")) == ("FixedBatches", seed)
        and (start.get("class"), start.get("seed")) == ("FixedInitialisation", seed)
    )
    return mechanism if known else None


def _preset_settings(mechanism: DescribedMechanism) -> dict[str, Any]:
    keys = ("steps", "learning_rate", "clip_norm", "noise_multiplier")
    settings = {key: getattr(mechanism, key) for key in keys}
    return {**settings, "batch_size": mechanism.batches["batch_size"]}


def _preset_options(
    description: Description, preset: DescribedMechanism, read: Mapping[str, float]
) -> dict[str, Any]:
    insertion = description.insertion
    usual = {"canaries": 1, "period": 1, "phase": "first"}
    options = {
        "preset": preset.name,
        "adversary": description.adversary.name,
        "runs": description.runs,
        "canaries": description.canaries,
        "period": 1 if insertion is None else insertion.period,
        "phase": "first" if insertion is None else insertion.phase,
        **_preset_settings(preset),
        **read,
        "seed": description.seed,
        "data_dir": _FOLDER if _from_folder(preset) else None,
    }
    return {key: value for key, value in options.items() if usual.get(key) != value}


def _from_folder(mechanism: DescribedMechanism) -> bool:
    """Whether the data came from a folder of the user."""
    chosen, data = PRESETS[mechanism.name], mechanism.data
    return chosen.needs_folder and (data is None or data.name != chosen.stand_in)


def _file_only(description: Description) -> Iterator[tuple[str, Any]]:
    """Settings that differ from their defaults and have no option."""
    settings = description.adversary.settings
    for key, usual in {"simulation": "noiseless", "ranking": "per-step", "simulations": 4}.items():
        if settings.get(key, usual) != usual:
            yield key, settings[key]
    horizons = _further_horizons(description)
    if horizons:
        yield "horizons", horizons
    if description.speed.precision != "float32":
        yield "precision", description.speed.precision


def _further_horizons(description: Description) -> list[int]:
    steps = getattr(description.mechanism, "steps", None)
    return [horizon for horizon in description.horizons if horizon != steps]


def _audit_code(
    description: Description,
    preset: DescribedMechanism | None,
    read: Mapping[str, float],
    kept: Mapping[str, str],
) -> str:
    insertion = description.insertion
    imports = ["import dpaudit"]
    if preset is None:
        name = description.mechanism.name
        made = [f"training = ...  # the DPSGD of this audit; its name is {name!r}"]
    else:
        given = {**_preset_settings(preset), "seed": description.seed}
        if _from_folder(preset):
            given["data_dir"] = _FOLDER
        if PRESETS[preset.name].make is not None and insertion is not None:
            given |= {"period": insertion.period, "phase": insertion.phase}
        made = [f'training = dpaudit.presets.preset("{preset.name}").training(']
        made += [*_arguments(given), ")"]
    options: dict[str, Any] = {"runs": description.runs}
    if description.canaries != 1:
        options["canaries"] = description.canaries
    if insertion is not None and (insertion.period, insertion.offset) != (1, 0):
        steps = f"period={insertion.period}"
        steps += f", offset={insertion.offset}" if insertion.offset else ""
        options["insertion"] = _Code(f"dpaudit.Insertion({steps})")
    options |= {**read, "seed": description.seed}
    horizons = _further_horizons(description)
    if horizons:
        options["horizons"] = horizons
    options |= kept
    if description.speed.precision != "float32":
        imports.append("from dpaudit.engine import Speed")
        options["speed"] = _Code(f"Speed(precision={_literal(description.speed.precision)})")
    call = ["result = dpaudit.audit(", "    training,", _crafter(description)]
    return _code(imports, [*made, *call, *_arguments(options), ")"])


def _crafter(description: Description) -> str:
    settings = dict(description.adversary.settings)
    kind = str(settings.pop("class", description.adversary.name))
    # Names come from the store, and nothing of it is printed as code that dpaudit does not know.
    if kind not in adversaries.__all__ or not all(key.isidentifier() for key in settings):
        return f"    ...,  # the adversary of this audit; its class is {kind!r}"
    inside = [f"{key}={_literal(value)}" for key, value in settings.items()]
    line = f"    dpaudit.adversaries.{kind}({', '.join(inside)}),"
    if len(line) <= _LINE:
        return line
    spread = "".join(f"        {setting},\n" for setting in inside)
    return f"    dpaudit.adversaries.{kind}(\n{spread}    ),"


def _training_snippets(
    description: Description, training: DescribedTraining, kept: Mapping[str, str]
) -> Iterator[Snippet]:
    module, _, function = training.name.partition(":")
    claim = _claim_settings(training)
    options: dict[str, Any] = {"runs": description.runs, "seed": description.seed}
    usual = DescribedTraining(name="", source="")
    for key in ("delta", "confidence", "detect", "power"):
        if getattr(training, key) != getattr(usual, key):
            options[key] = getattr(training, key)
    if training.until_violation:
        options["until_violation"] = True
    names = [*module.split("."), *function.split(".")]
    importable = module != "__main__" and all(name.isidentifier() for name in names)
    if not importable:
        function = "train"
    if importable and (claim.keys() & {"noise_multiplier", "epsilon"}):
        place = next((f for f in training.files if f == f"{module}.py"), None)
        words = ["dpaudit", "audit-training", f"{place or module}:{function}"]
        pair = {} if "epsilon" not in claim else {"claimed_epsilon": claim.pop("epsilon")}
        bare = (training.claim or {}).get("mu") is None and pair
        words += _options({**pair, **claim, **options, **kept})
        words += ["--pair-only"] if bare else []
        yield Snippet(caption="On the command line", text=_wrapped(words))
    made = (
        f"from {module} import {function}" if importable else f"{function} = ...  # your training"
    )
    code = {"canary": _Code("..."), "claim": _Code(_claim_code(training)), **options, **kept}
    lines = [f"result = dpaudit.audit_training({function},", *_arguments(code), ")"]
    yield Snippet(caption="In Python", text=_code(["import dpaudit", made], lines))


def _claim_settings(training: DescribedTraining) -> dict[str, Any]:
    """The settings of the claim that dpaudit knows."""
    stored = (training.claim or {}).get("settings", {})
    known = ("epsilon", "delta", "mu", "noise_multiplier", "steps", "sampling_rate")
    return {key: stored[key] for key in stored if key in known}


def _claim_code(training: DescribedTraining) -> str:
    claim, settings = training.claim or {}, _claim_settings(training)
    if "noise_multiplier" in settings:
        maker = "from_dpsgd"
    elif "mu" in settings:
        maker = "from_mu"
    elif "epsilon" in settings and claim.get("mu") is not None:
        maker = "from_epsilon"
    elif "epsilon" in settings:
        pair = f"({settings['epsilon']!r}, {settings['delta']!r})"
        return f"dpaudit.Claim.from_points([{pair}])"
    else:
        return f"...  # {' '.join(str(claim.get('description', 'the claim')).split())}"
    inside = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    return f"dpaudit.Claim.{maker}({inside})"


class _Code(str):
    """Text that is code already."""

    __slots__ = ()


def _code(imports: list[str], lines: list[str]) -> str:
    return "\n".join([*imports, "", *lines, 'result.report("page.html")'])


def _arguments(options: Mapping[str, Any]) -> list[str]:
    return [f"    {key}={_literal(value)}," for key, value in options.items()]


def _options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as command-line options; a flag has no value."""
    words = []
    for key, value in settings.items():
        option = f"--{key.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not None:
            words.append(f"{option} {shlex.quote(str(value))}")
    return words


def _wrapped(words: list[str]) -> str:
    """A command over several lines, joined for a shell."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > _LINE:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def _literal(value: Any) -> str:
    """A value as Python and TOML both write it."""
    if isinstance(value, _Code):
        return str(value)
    return json.dumps(value) if isinstance(value, str) else repr(value)
