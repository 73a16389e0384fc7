"""An Opacus optimizer as a private step: its clipping, its noise and its scaling, under check.

Ghost clipping clips in the backward pass and never forms per-example gradients, so that the
optimizer's step cannot show it; `ghost_clipping_finding` checks it on a batch of examples.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch

from dpaudit._arrays import Array
from dpaudit.checks import CheckResult, check_step
from dpaudit.checks.contribution import BOUNDED, FINITE
from dpaudit.checks.findings import Finding, Rule, broken, not_tested, passed
from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.integrations.opacus.optimizer import named_sizes, uncovered_parameters

COVERAGE = Rule(
    name="every tensor is private",
    requirement="The private optimizer trains all trainable parameters of the model.",
    cause="A tensor is trained by another optimizer, or was not registered with the private one.",
    remedy="Freeze these parameters, or give them to the private optimizer.",
    seen_in="heads trained by an optimizer of their own",
)


@final
class OpacusStep:
    """``private_step(gradients, seed)`` by a copy of a ``DPOptimizer``.

    Rows of ``gradients`` become ``grad_sample``; the result is ``grad`` after ``pre_step()``, flat,
    in the order of the optimizer's parameters. The user's optimizer, model, generator and
    accountant are not changed: a copy is made once, without the hook that counts steps.

    See also: `check_optimizer`; `dpaudit.checks.check_step`.

    Arguments:
        optimizer: A ``DPOptimizer``, flat or per layer. For ghost clipping, which happens in the
            backward pass and not in the optimizer, rows are clipped here, by the definition; see
            `ghost_clipping_finding` for the clipping itself.
    """

    def __init__(self, optimizer: Any) -> None:
        try:
            from opacus.optimizers import DPOptimizer
            from opacus.optimizers.optimizer_fast_gradient_clipping import (
                DPOptimizerFastGradientClipping,
            )
        except ImportError as error:
            raise MissingExtra("checking an Opacus optimizer", "opacus") from error
        if not isinstance(optimizer, DPOptimizer):
            raise InvalidInput(
                f"optimizer must be a DPOptimizer, got {type(optimizer).__name__}; "
                "PrivacyEngine.make_private returns one"
            )
        self.clips = not isinstance(optimizer, DPOptimizerFastGradientClipping)
        self._optimizer = copy_of(optimizer)
        self._parameters = list(self._optimizer.params)
        self._sizes = [parameter.numel() for parameter in self._parameters]

    @property
    def parameters(self) -> int:
        """Number of entries of a gradient."""
        return sum(self._sizes)

    @property
    def clip_norm(self) -> float:
        """The optimizer's clip norm; with clipping per layer, that of all layers together."""
        return float(self._optimizer.max_grad_norm)

    @property
    def noise_multiplier(self) -> float:
        """The optimizer's noise multiplier."""
        return float(self._optimizer.noise_multiplier)

    def __call__(self, gradients: Array, seed: int) -> Array:
        """Clip, add noise and scale, without updating the parameters."""
        device = self._parameters[0].device
        self._optimizer.generator = torch.Generator(device).manual_seed(seed)
        edges = np.cumsum(self._sizes)[:-1]
        if not self.clips:
            gradients = clipped_rows(gradients, self.clip_norm)
        for parameter, part in zip(
            self._parameters, np.split(gradients, edges, axis=1), strict=True
        ):
            rows = torch.as_tensor(part, dtype=parameter.dtype, device=device)
            if self.clips:
                parameter.grad_sample = rows.reshape(len(gradients), *parameter.shape)
            else:
                parameter.grad = rows.sum(dim=0).reshape(parameter.shape)
            parameter.summed_grad = None
        self._optimizer.pre_step()
        flat = [parameter.grad.reshape(-1).double().cpu() for parameter in self._parameters]
        update: Array = torch.cat(flat).numpy()
        return update


def copy_of(optimizer: Any) -> Any:
    """A copy with parameters of its own; ``copy.deepcopy`` fails on a ``DPOptimizer``."""
    twin = object.__new__(type(optimizer))
    memo: dict[int, Any] = {}
    for name, value in vars(optimizer).items():
        if getattr(value, "__self__", None) is optimizer:  # a replaced method, of the original
            continue
        # The hook would report these steps to the user's accountant; the generator is set per call.
        kept_out = name in ("step_hook", "generator", "_step_skip_queue")
        twin.__dict__[name] = None if kept_out else copy.deepcopy(value, memo)
    twin._step_skip_queue = []
    return twin


def check_optimizer(
    optimizer: Any,
    *,
    noise_multiplier: float | None = None,
    clip_norm: float | None = None,
    model: Any = None,
    criterion: Any = None,
    examples: tuple[Any, Any] | None = None,
    **options: Any,
) -> CheckResult:
    """Check the private step of a ``DPOptimizer`` against its own settings or another claim.

    See also: `OpacusStep`, `dpaudit.check_training`.

    Arguments:
        optimizer: As in `OpacusStep`.
        noise_multiplier: The claimed sigma; the optimizer's own by default.
        clip_norm: The claimed clip norm C; the optimizer's own by default.
        model: The model, for the names of its parameters, and to find trainable parameters that the
            optimizer does not train.
        criterion: For ghost clipping: the loss function that ``make_private`` returned.
        examples: For ghost clipping: a batch (inputs, labels). With model, criterion and examples
            the clipping in the backward pass is checked on these examples.
        options: Further arguments of `dpaudit.checks.check_step`, such as ``runs`` and ``seed``.

    Example:
        >>> import torch
        >>> from opacus.optimizers import DPOptimizer
        >>> weights = torch.nn.Parameter(torch.zeros(20, 30))
        >>> optimizer = DPOptimizer(
        ...     torch.optim.SGD([weights], lr=0.1),
        ...     noise_multiplier=1.0,
        ...     max_grad_norm=1.0,
        ...     expected_batch_size=16,
        ... )
        >>> result = check_optimizer(optimizer, noise_multiplier=2.0)
        >>> result["noise size"].verdict, result["bounded contribution"].verdict
        ('broken', 'passed')
    """
    step = OpacusStep(optimizer)
    result = check_step(
        step,
        clip_norm=step.clip_norm if clip_norm is None else clip_norm,
        noise_multiplier=step.noise_multiplier if noise_multiplier is None else noise_multiplier,
        parameters=step.parameters,
        tensors=named_sizes(optimizer, model),
        **options,
    )
    findings = list(result.findings)
    if not step.clips:
        findings = ghost_findings(findings, model, criterion, examples, clip_norm=step.clip_norm)
    if model is not None:
        findings.append(coverage_finding(optimizer, model))
    return replace(result, findings=tuple(findings))


def coverage_finding(optimizer: Any, model: torch.nn.Module) -> Finding:
    """Whether all trainable parameters are trained privately, as a finding of a check."""
    names = uncovered_parameters(optimizer, model)
    if not names:
        return COVERAGE.finding(passed(measured="all", allowed="all"))
    return COVERAGE.finding(
        broken(
            f"The private optimizer does not train {', '.join(names)}.",
            measured=f"{len(names)} outside",
            allowed="none",
        )
    )


# Ghost clipping.

_EXAMPLES = 8
_FACTORS = (1.0, 1e3)
_SLACK = 0.01


def clipped_rows(gradients: Array, clip_norm: float) -> Array:
    """Rows clipped by the definition; rows that are not finite become zero."""
    finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    rows = np.where(finite, gradients, 0.0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    norms = np.linalg.norm(rows / largest, axis=1, keepdims=True) * largest
    clipped: Array = rows * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))
    return clipped


def ghost_findings(
    findings: Sequence[Finding],
    model: Any,
    criterion: Any,
    examples: tuple[Any, Any] | None,
    *,
    clip_norm: float,
) -> list[Finding]:
    """The findings about an optimizer, with those about clipping taken from the backward pass."""
    others = [finding for finding in findings if finding.rule not in (BOUNDED, FINITE)]
    if model is None or criterion is None or examples is None:
        reason = (
            "Ghost clipping clips in the backward pass: give model=, criterion= and "
            "examples=(inputs, labels) to check_optimizer to check it."
        )
        return [BOUNDED.finding(not_tested(reason)), *others]
    return [ghost_clipping_finding(model, criterion, examples, clip_norm=clip_norm), *others]


def ghost_clipping_finding(
    model: Any, criterion: Any, examples: tuple[Any, Any], *, clip_norm: float
) -> Finding:
    """Compare the summed gradient of a batch with and without each of a few examples.

    Arguments:
        model: The model that ``make_private`` returned.
        criterion: The loss function that it returned.
        examples: Inputs and labels of a batch. Inputs of floating point are scaled up too, for
            long gradients.
        clip_norm: The claimed clip norm C.
    """
    inputs, labels = examples
    factors = _FACTORS if torch.is_floating_point(inputs) else _FACTORS[:1]
    worst = 0.0
    with _unchanged(model):
        for place in range(min(len(inputs), _EXAMPLES)):
            others = [index for index in range(len(inputs)) if index != place]
            without = _summed(model, criterion, inputs[others], labels[others])
            for factor in factors:
                scaled = inputs.clone()
                scaled[place] = factor * scaled[place]
                change = _summed(model, criterion, scaled, labels) - without
                worst = max(worst, float(change.norm()) / clip_norm)
    evidence = {"measured": f"{worst:.4g} C", "allowed": f"at most {1 + _SLACK:.4g} C"}
    if worst <= 1 + _SLACK:
        return BOUNDED.finding(passed(**evidence))
    words = f"One example changes the clipped sum of a batch by {worst:.4g} C in the backward pass."
    return BOUNDED.finding(broken(words, **evidence))


def _summed(model: Any, criterion: Any, inputs: Any, labels: Any) -> Any:
    """The sum of clipped gradients that ghost clipping leaves in ``grad``, flat."""
    model.zero_grad(set_to_none=True)
    if len(inputs) == 0:
        return torch.zeros(sum(p.numel() for p in model.parameters() if p.requires_grad))
    criterion(model(inputs), labels).backward()
    return torch.cat([p.grad.reshape(-1).clone() for p in model.parameters() if p.requires_grad])


@contextlib.contextmanager
def _unchanged(model: Any) -> Iterator[None]:
    """Restore gradients and what a backward pass leaves on the parameters."""
    before = [(p, p.grad, dict(vars(p))) for p in model.parameters()]
    try:
        yield
    finally:
        for parameter, gradient, attributes in before:
            parameter.grad = gradient
            vars(parameter).clear()
            vars(parameter).update(attributes)
