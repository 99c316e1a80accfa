"""Whatever starts afresh starts as the network itself does: a user's own by its factory, by its layers, or from the
weights that were given; a shipped one with Xavier's draw. What cannot is refused before any work."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from own_networks import Drawn, Layered
from small_worlds import SCHEDULE, Tapped
from torch import Tensor, nn

from fedforget.audit.examine import ORACLES, Case, examine, examine_oracles, judge
from fedforget.audit.measures import measure
from fedforget.audit.oracles import oracle_models
from fedforget.audit.verdict import Verdict
from fedforget.data import load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.own import from_arrays
from fedforget.data.partition import partition
from fedforget.errors import InputError
from fedforget.federation.cost import Meter
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.starts import Network
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.methods.fedaf.memory_generator import teacher_labels
from fedforget.methods.pgd import ball_radius
from fedforget.methods.rebuild import RebuildSettings, rebuild
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.models import MODELS, build_model, fresh_copy, xavier_initialise
from fedforget.params import State, digest, flatten, state_of, trainable
from fedforget.requests import ErasureRequest

REQUEST = ErasureRequest.of_class(0, 1)


def images(model: Network, **more: object) -> Tapped:
    """Three clients with 20 noisy images each."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (60, 1, 8, 8), dtype=torch.uint8, generator=generator)
    data = from_arrays(pixels, torch.arange(60) % 10, pixels[:10], torch.arange(10))
    return Tapped(data, list(torch.arange(60).split(20)), model, **more)  # type: ignore[arg-type]


def table(model: Network, **more: object) -> Tapped:
    features = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    data = from_arrays(features, torch.arange(30) % 3, features[:6], torch.arange(6) % 3)
    return Tapped(data, list(torch.arange(30).split(10)), model, **more)  # type: ignore[arg-type]


def spread(state: State) -> dict[str, float]:
    return {name: float(tensor.std()) for name, tensor in state.items() if tensor.numel() > 1}


def retrain_begins(world: LocalFederation, seed: int) -> State:
    return fresh_start(world.model, replace(SCHEDULE, seed=seed), RetrainSettings())


# A user's own network


@pytest.mark.parametrize("seed", [100, 101, 102])
@pytest.mark.parametrize(
    ("kind", "given"),
    [(Layered, Layered), (Drawn, Drawn), (Layered, lambda: Layered())],
    ids=["class", "own draw", "function"],
)
def test_retrain_begins_with_the_networks_own_spread_in_every_layer(
    kind: type[Layered], given: Callable[[], nn.Module], seed: int
):
    own, world = spread(state_of(kind())), images(given)
    begun = retrain_begins(world, seed)
    _compare_spreads(spread(begun), own, begun)
    assert digest(begun) != digest(retrain_begins(world, seed + 1))
    assert digest(begun) != digest(state_of(world.model)), "not the first training's draw"


@pytest.mark.parametrize("seed", [100, 101, 102])
def test_an_instance_begins_as_its_layers_do(seed: int):
    world = images(Layered())
    begun = retrain_begins(world, seed)
    _compare_spreads(spread(begun), spread(state_of(Layered())), begun)


def _compare_spreads(begun: dict[str, float], own: dict[str, float], state: State) -> None:
    assert begun.keys() == own.keys()
    for name, value in begun.items():
        assert value == pytest.approx(own[name], rel=4 / state[name].numel() ** 0.5), name


def test_a_factory_is_called_under_a_seed_and_the_global_generator_stays():
    before = torch.get_rng_state()
    world = images(Drawn)
    first = retrain_begins(world, 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert digest(retrain_begins(images(Drawn), 3)) == digest(first)
    assert digest(state_of(images(Drawn).model)) == digest(state_of(world.model))


def test_nothing_of_the_training_is_in_a_fresh_start():
    """Not even in what no layer resets: the workspace holds whatever ran last."""

    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 3)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += len(x)  # type: ignore[has-type]
            return super().forward(x)

    for given in (Counting, nn.Sequential(Counting(), nn.BatchNorm1d(3))):
        world = table(given)
        first = retrain_begins(world, 3)
        train(world, state_of(world.model), SCHEDULE)
        assert digest(retrain_begins(world, 3)) == digest(first)
        again = LocalFederation(world_data(world), [torch.arange(30)], world.model)
        assert digest(retrain_begins(again, 3)) == digest(first), "the same network in another federation"


def world_data(world: LocalFederation) -> object:
    features = world.client(0).samples.features
    return from_arrays(features.repeat(3, 1), torch.arange(30) % 3, features[:6], torch.arange(6) % 3)


def test_frozen_layers_stay_as_the_instance_has_them():
    backbone = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)).requires_grad_(False)
    with torch.no_grad():
        for tensor in backbone.state_dict().values():
            tensor.add_(3)  # trained elsewhere
    kept = copy.deepcopy(backbone.state_dict())
    world = table(nn.Sequential(backbone, nn.Linear(8, 3)))
    train(world, state_of(world.model), SCHEDULE)
    begun = retrain_begins(world, 3)
    assert all(torch.equal(begun[f"0.{name}"], tensor) for name, tensor in kept.items())
    assert not torch.equal(begun["1.weight"], retrain_begins(world, 4)["1.weight"])


def test_a_module_that_holds_a_parameter_itself_says_how_it_begins():
    class WithToken(nn.Module):
        """Its reset_parameters does not touch the layers inside."""

        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
            self.token = nn.Parameter(torch.empty(6))
            self.head = nn.Linear(6, 3)
            self.reset_parameters()

        def reset_parameters(self) -> None:
            nn.init.normal_(self.token, std=0.02)

        def forward(self, x: Tensor) -> Tensor:
            tokens = (x + self.token)[:, None]
            return self.head(self.attention(tokens, tokens, tokens)[0][:, 0])

    world = table(WithToken())
    first, second = retrain_begins(world, 1), retrain_begins(world, 2)
    fixed = {"attention.in_proj_bias", "attention.out_proj.bias"}
    assert {name for name in first if torch.equal(first[name], second[name])} == fixed
    assert float(first["token"].abs().max()) < 0.1


# Given weights


def test_from_given_weights_everything_that_starts_afresh_starts():
    pretrained = {name: tensor + 0.5 for name, tensor in state_of(Layered()).items()}
    for given in (Layered, Layered()):
        world = images(given, initial=pretrained)
        assert digest(state_of(world.model)) == digest(pretrained)
        for method in ("retrain", "frr"):
            world.log.clear()
            forget(world, state_of(Layered()), REQUEST, replace(SCHEDULE, rounds=1), method)
            assert digest(world.log[0][1]) == digest(pretrained)
    oracles = oracle_models(world, [REQUEST], replace(SCHEDULE, rounds=1), 2, data="")
    starts = [digest(state) for task, state, _ in world.log if getattr(task, "round", None) == 0]
    assert set(starts) == {digest(pretrained)}
    assert digest(oracles[0]) != digest(oracles[1]), "the order of the batches is their own"


def test_an_instance_with_given_weights_stays_as_it_is():
    network, pretrained = Layered(), state_of(Layered())
    before = digest(network.state_dict())
    images(network, initial=pretrained)
    assert digest(network.state_dict()) == before
    assert digest(retrain_begins(images(network), 1)) != digest(pretrained), "another federation was given none"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda state: state.pop("norm.bias"), "The initial weights are not those of this Layered: .* at 'norm.bias';"),
        (lambda state: state.update(more=torch.ones(1)), "The initial weights are not those .* at 'more';"),
        (lambda state: state.update({"head.bias": torch.ones(9)}), "The initial weights are not .* at 'head.bias';"),
        (lambda state: state["head.bias"].fill_(torch.nan), "damaged: their 'head.bias' is not finite"),
    ],
)
def test_given_weights_of_another_network_are_refused(change: Callable[[State], object], sentence: str):
    initial = state_of(Layered())
    change(initial)
    with pytest.raises(InputError, match=sentence):
        images(Layered, initial=initial)


# Whatever else starts afresh


@pytest.mark.parametrize("given", [Drawn, partial(Layered, 1, 16)])
def test_rebuilding_teachers_and_distances_take_the_networks_own_draw(given: Callable[[], nn.Module]):
    world = images(given)
    own = spread(state_of(world.model))
    zero = {name: torch.zeros_like(tensor) for name, tensor in state_of(world.model).items()}
    rebuild(Meter(world), zero, (REQUEST,), RebuildSettings(first=1e-9), SCHEDULE)
    sent = next(state for task, state, _ in world.log if isinstance(task, Train))
    for name, value in spread(sent).items():
        assert value == pytest.approx(own[name], rel=4 / sent[name].numel() ** 0.5), name
    client = world.client(0)
    mean_square = sum(
        float(flatten(trainable(fresh_copy(world.model, seed))).square().sum()) for seed in range(20)
    ) / 20  # fmt: skip
    radius = ball_radius(torch.zeros(len(flatten(trainable(world.model)))), client.model, 10, 0)
    assert radius == pytest.approx((mean_square / 3) ** 0.5, rel=0.05)
    twin = torch.stack([_predictions(fresh_copy(client.model, seed), client) for seed in range(200, 240)]).mean(0)
    labels = teacher_labels(client.model, client.samples, client, 40, 5)
    assert torch.allclose(labels, twin, atol=0.06)


def _predictions(model: nn.Module, client: object) -> Tensor:
    with torch.no_grad():
        return model.eval()(client.inputs(client.samples.features)).softmax(1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("resnet18", "vit-20m")])
def test_shipped_networks_begin_with_xaviers_draw_however_they_come(name: str):
    expected = digest(xavier_initialise(MODELS[name]((1, 8, 8), 10), 9).state_dict())
    built = build_model(name, (1, 8, 8), 10, 1)
    for given in (built, copy.deepcopy(built), lambda: build_model(name, (1, 8, 8), 10, 1)):
        world = images(given)
        assert digest(fresh_copy(world.model, 9).state_dict()) == expected
        assert digest(fresh_copy(fresh_copy(world.model, 2), 9).state_dict()) == expected


# Refusals


class Partial(nn.Linear):
    """Forgets to reset its bias."""

    def reset_parameters(self) -> None:
        if self.bias is not None and not hasattr(self, "known"):
            super().reset_parameters()
            self.known = True
        else:
            nn.init.normal_(self.weight)


class Scaled(nn.Module):
    """Holds a parameter that nobody resets."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.linear = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.scale * x)


class NumpyDrawn(nn.Linear):
    def reset_parameters(self) -> None:
        drawn = np.random.default_rng().normal(size=tuple(self.weight.shape))
        with torch.no_grad():
            self.weight.copy_(torch.as_tensor(drawn))
            self.bias.zero_()


def trained() -> nn.Module:
    network = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3))
    with torch.no_grad():
        network[0].weight.mul_(3)  # type: ignore[operator,union-attr]
    return network


def normalised() -> nn.Module:
    """Zero where the layer itself begins with one, as at the end of a residual block."""
    network = nn.Sequential(nn.Linear(6, 40), nn.LayerNorm(40), nn.Linear(40, 3))
    nn.init.zeros_(network[1].weight)  # type: ignore[arg-type]
    return network


ONE = nn.Linear(6, 3)
BACKBONE = nn.Linear(6, 6)
INSTANCE_REMEDY = "give the network's class or a function that makes it in place of the instance, or "
MOVED = f"begins in a way of its own or is trained; {INSTANCE_REMEDY}its first weights as `initial`."


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (nn.Linear, "The model must be an nn.Module, or make one without arguments: missing a required argument: "),
        ("cnn", "The model must be an nn.Module, or make one without arguments: 'cnn' is not a callable object;"),
        (lambda: 3, "The network's factory makes a int, but it must make an nn.Module."),
        (lambda: ONE, "The network's factory makes networks that share their 'weight', so "),
        (lambda: nn.Sequential(BACKBONE, nn.Linear(6, 3)), "makes networks that share their '0.weight'"),
        (lambda: NumpyDrawn(6, 3), "makes other weights from the same seed; draw them with torch's own generator."),
        (lambda: nn.LazyLinear(3), "Layer '' is lazy, "),
        (Scaled(), f"Nobody knows how parameter 'scale' begins, .*; {INSTANCE_REMEDY}give its module a reset_"),
        (Partial(6, 3), "Nobody knows how parameter 'bias' begins, "),
        (trained(), rf"The model's '0.weight' is drawn .*spread of 0.\d+, but reset_.* spread of 0.\d+, so .*{MOVED}"),
        (normalised(), f"The model's '1.weight' is 0 throughout, but reset_parameters makes it 1 throughout.*{MOVED}"),
    ],
)  # fmt: skip
def test_what_cannot_start_afresh_is_refused_before_any_work(given: Network, sentence: str):
    for _ in range(2):  # the second time as the first
        with pytest.raises(InputError, match=sentence) as refusal:
            table(given)
        assert "\n" not in str(refusal.value)


def test_an_instance_that_draws_elsewhere_is_refused_and_its_class_is_not():
    with pytest.raises(InputError, match=re.escape(INSTANCE_REMEDY)):
        images(Drawn())
    images(Drawn)


@pytest.mark.slow
def test_chance_alone_refuses_nobody():
    """Small layers, where a draw says little, and one of zeros and few large numbers."""

    class Sparse(nn.Linear):
        def reset_parameters(self) -> None:
            nn.init.sparse_(self.weight, 0.9)
            nn.init.zeros_(self.bias)

    for seed in range(2000):
        torch.manual_seed(seed)
        table(nn.Sequential(nn.Linear(6, 2), nn.GELU(), Sparse(2, 30), nn.Linear(30, 3)))


# The verdicts that hang on it


class Poisoned:
    """Digits, a backdoor in the threes of client 0, and a network with a draw of its own: trained, and retrained."""

    def __init__(self, seed: int) -> None:
        self.data, self.target = load_dataset("digits"), ErasureRequest.of_class(0, 3)
        self.backdoor = Backdoor.draw(self.target, Trigger(2, margin=0), 10, seed)
        parts = partition("iid", self.data.train.labels, 4, seed)
        self.world = LocalFederation(self.data, parts, Drawn, backdoors=[self.backdoor])
        schedule = Schedule(rounds=30, lr=0.1, batch_size=16, decay=0.1, seed=seed, threads=1)
        self.before = train(self.world, state_of(fresh_copy(self.world.model, seed)), schedule)
        count = ORACLES["quick"] + 1
        trained_afresh = oracle_models(self.world, [self.target], schedule, count, data="")
        self.retrained, *self.oracles = trained_afresh
        self.case = Case(self.world, (self.target,), schedule, "quick")

    def test_accuracy(self, state: State) -> float:
        return measure(self.world, state, [self.target], self.data.test, backdoor=self.backdoor).test_acc

    def verdict(self, state: State) -> Verdict:
        """Against the oracles, none of which is `retrained`."""
        others = examine_oracles(self.case, self.oracles, lambda *_: None)
        before = examine(self.case, self.before, self.oracles)
        return judge(examine(self.case, state, self.oracles), before, others)[1]


@pytest.fixture(scope="module")
def poisoned() -> list[Poisoned]:
    return [Poisoned(seed) for seed in (100, 101, 102)]


@pytest.mark.slow
def test_an_own_networks_retrain_is_as_good_as_its_first_training(poisoned: list[Poisoned]):
    first = [world.test_accuracy(world.before) for world in poisoned]
    again = [world.test_accuracy(world.retrained) for world in poisoned]
    assert min(first) > 90
    assert sum(again) / 3 == pytest.approx(sum(first) / 3, abs=1.0), (first, again)


@pytest.mark.slow
def test_an_own_networks_fresh_retrain_is_forgotten_and_its_poisoned_model_is_not(poisoned: list[Poisoned]):
    assert [world.verdict(world.before).word for world in poisoned] == ["not forgotten"] * 3
    assert [world.verdict(world.retrained).word for world in poisoned] == ["forgotten"] * 3
