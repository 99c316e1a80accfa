"""How a user's own network begins. Retrain and whatever else needs an untrained copy must begin as the first training
did: from other weights another model comes, and every comparison with it is wrong.

    a factory          `MyNetwork`, a function: called again, under a seed of its own
    an instance        by the layers' own `reset_parameters`, where that is how the instance itself began
    initial weights    from exactly these, such as pretrained ones. What the pretraining saw no retrain forgets

A shipped network begins with Xavier's draw (`models.xavier_initialise`), however it comes."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from fedforget.errors import InputError
from fedforget.models import begins_with, check_layers, reset_layers, start_of
from fedforget.params import copy_state, digest, first_non_finite, state_of, trainable
from fedforget.seeds import seeded_globally

Network = nn.Module | Callable[[], nn.Module]
"""A network, or what makes one: a class or a function that takes no arguments and draws the weights with torch."""


def network_of(model: Network, initial: Mapping[str, Tensor] | None = None) -> nn.Module:
    """The network of a federation, with its first weights; `fresh_copy` knows from now on how it begins."""
    network = model if isinstance(model, nn.Module) else _made(model, 0)
    check_layers(network)
    if initial is not None:
        network = copy.deepcopy(network)  # whoever else has this network begins it in another way
        begins_with(network, partial(_given, _checked(initial, network)))
        return _given(initial, network)
    if start_of(network) is None:
        if isinstance(model, nn.Module):
            _check_instance(network)
            begins_with(network, partial(_as_constructed, state_of(network)))
        else:
            _check_factory(model, network)
            begins_with(network, partial(_drawn, model))
    return network


def _made(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise InputError(
            f"The model must be an nn.Module, or make one without arguments: {error}; give its class, or a function."
        ) from None
    with seeded_globally(torch.device("cpu"), seed, "network"):
        network = factory()
    if not isinstance(network, nn.Module):
        raise InputError(f"The network's factory makes a {type(network).__name__}, but it must make an nn.Module.")
    return network


def _drawn(factory: Callable[[], nn.Module], model: nn.Module, seed: int) -> nn.Module:
    model.load_state_dict(_made(factory, seed).state_dict())
    return model


def _as_constructed(constructed: Mapping[str, Tensor], model: nn.Module, seed: int) -> nn.Module:
    """Buffers that no layer resets and frozen weights are the instance's; training may have moved a buffer since."""
    model.load_state_dict(dict(constructed))
    return reset_layers(model, seed)


def _given(initial: Mapping[str, Tensor], model: nn.Module, seed: int = 0) -> nn.Module:
    model.load_state_dict(dict(initial))
    return model


def _checked(initial: Mapping[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    own = network.state_dict()
    odd = next(
        (n for n in (*own, *initial) if n not in initial or n not in own or initial[n].shape != own[n].shape), None
    )
    if odd is not None:
        raise InputError(
            f"The initial weights are not those of this {type(network).__name__}: they differ at '{odd}'; "
            "give what state_of says of such a network."
        )
    broken = first_non_finite(initial)
    if broken is not None:
        raise InputError(f"The initial weights are damaged: their '{broken}' is not finite.")
    return copy_state(initial)


def _check_factory(factory: Callable[[], nn.Module], network: nn.Module) -> None:
    """Refuse one that hands out the same layers twice, or whose draw no seed decides."""
    again = _made(factory, 0)
    places = {tensor.data_ptr() for tensor in network.state_dict().values() if tensor.numel()}
    shared = next((name for name, tensor in again.state_dict().items() if tensor.data_ptr() in places), None)
    if shared is not None:
        raise InputError(
            f"The network's factory makes networks that share their '{shared}', so that a fresh one would be trained "
            "already; make every layer inside it, or put a copy.deepcopy there."
        )
    if digest(again.state_dict()) != digest(network.state_dict()):
        raise InputError(
            "The network's factory makes other weights from the same seed; draw them with torch's own generator."
        )


def _check_instance(network: nn.Module) -> None:
    """Refuse an instance that no fresh copy is like: its weights are drawn elsewhere than in reset_parameters (by an
    __init__ that calls nn.init), or they are trained."""
    own = copy.deepcopy(network).cpu()
    drawn = trainable(reset_layers(copy.deepcopy(own), 0))
    for name, weights in trainable(own).items():
        if not _alike(weights.detach(), drawn[name].detach()):
            raise InputError(
                f"The model's '{name}' is {_spread(weights)}, but reset_parameters makes it {_spread(drawn[name])}, so "
                "the model begins in a way of its own or is trained; give the network's class or a function that makes "
                "it in place of the instance, or its first weights as `initial`."
            )


def _alike(own: Tensor, drawn: Tensor) -> bool:
    """Whether two draws may come from one distribution. A constant is the same constant. Else the root mean squares lie
    within a factor of exp(0.2 + 5 / sqrt(m)), where m = (sum x^2)^2 / sum x^4 is how many numbers carry the mean of the
    squares: a third of all for a normal distribution, fewer for a sparse one. Chance alone brings a seventh of it."""
    if own.numel() == 1:
        return True
    constants = [bool((weights == weights.flatten()[0]).all()) for weights in (own, drawn)]
    if any(constants):
        return all(constants) and torch.allclose(own.float(), drawn.float(), rtol=1e-4, atol=1e-12)
    squares = [weights.double().square() for weights in (own, drawn)]
    m = min(float(x.sum() ** 2 / x.square().sum()) for x in squares)
    return abs(math.log(float(squares[0].mean() / squares[1].mean()))) / 2 <= 0.2 + 5 / math.sqrt(m)


def _spread(weights: Tensor) -> str:
    values = weights.detach().flatten()
    same = bool((values == values[0]).all())
    return (
        f"{float(values[0]):.3g} throughout"
        if same
        else f"drawn with a spread of {float(values.square().mean().sqrt()):.3g}"
    )
