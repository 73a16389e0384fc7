"""Xavier and Kaiming initialisation for any network of this package."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from dpaudit import _validate


def drawn_by(rule: str, build: Callable[[], nn.Module]) -> nn.Module:
    """The model from ``build`` with weights drawn by Xavier's or Kaiming's rule.

    Weights of linear and convolutional layers are uniform with the rule's variance. Biases are
    zero, as in both papers. Other layers are not changed.

    See also: `dpaudit.mechanisms.dpsgd.FreshInitialisation`.

    Paper: Glorot, Bengio (AISTATS 2010), equation 16; He, Zhang, Ren, Sun (ICCV 2015), equation 10.

    Arguments:
        rule: ``"xavier"`` or ``"kaiming"``.
        build: A function that builds the model, as in `dpaudit.mechanisms.dpsgd.DPSGD`.

    Example:
        >>> model = drawn_by("kaiming", lambda: nn.Linear(600, 10))
        >>> bool(model.weight.abs().max() <= 0.1), bool((model.bias == 0).all())
        (True, True)
    """
    _validate.one_of("rule", rule, ("xavier", "kaiming"))
    model = build()
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            if rule == "xavier":
                nn.init.xavier_uniform_(layer.weight)
            else:
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model
