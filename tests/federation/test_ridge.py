"""The ridge head: its equations, and that forgetting is the training that never had the target, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
import slow_twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedforget.data import Dataset, load_dataset
from fedforget.data.own import from_arrays
from fedforget.data.partition import partition
from fedforget.errors import ClientError, InputError
from fedforget.federation.client import SUMS
from fedforget.federation.evaluation import FORWARD_COST
from fedforget.federation.local import LocalFederation
from fedforget.federation.ridge import GAIN, REGULARISATION, Ridge, cut, random_ridge, ridge_on
from fedforget.federation.rounds import Schedule, further_round, run_round, train
from fedforget.federation.sums import BOTH, GRAM, MOMENTS, OfferSumKey, SendMaskedSums, SendSums
from fedforget.federation.tasks import Reply, Task
from fedforget.methods import forget as forget_with
from fedforget.models import MODELS, build_model
from fedforget.params import State, copy_state, digest, distance, state_of
from fedforget.requests import ErasureRequest, joint_mask
from fedforget.runs.ladder import forget

SCHEDULE = Schedule(rounds=1, threads=1)
PATCH = (2, 2, 3, 3)
KINDS = ("class", "samples", "client", "feature")


def world(name: str = "digits", *, masked: bool = False, clients: int = 4, samples: int = 300) -> LocalFederation:
    data = load_dataset(name).first(samples)
    model = random_ridge(data.shape, len(data.classes), 64, 7, masked=masked)
    return LocalFederation(data, partition("iid", data.train.labels, clients, 0), model)


def target(federation: LocalFederation, kind: str) -> ErasureRequest:
    own = federation.client(1).samples
    if kind == "class":
        return ErasureRequest.of_class(1, int(own.true_labels[0]))
    if kind == "samples":
        return ErasureRequest.of_samples(1, own.ids[3:10].tolist())
    if kind == "client":
        return ErasureRequest.of_client(1)
    return ErasureRequest.of_feature(1, PATCH if own.features.dim() == 4 else 4)


def without(federation: LocalFederation, request: ErasureRequest) -> LocalFederation:
    """Another federation, whose data never held the target: the samples are not there, the feature is blank."""
    clients = [federation.client(k) for k in federation.clients]
    rows = [client.samples for client in clients]
    own = rows[request.client]
    if request.kind == "feature":
        shape = own.features.shape[1:]
        blank = federation.normalisation.blanked(own.features, joint_mask([request.feature], shape))
        rows[request.client] = own.with_features(blank)
    else:
        rows[request.client] = own.select(~request.matches(own))
    features, labels = torch.cat([s.features for s in rows]), torch.cat([s.labels for s in rows])
    sizes = [len(s) for s in rows]
    data = Dataset(
        "without", replace(own, features=features, labels=labels, true_labels=labels, ids=torch.arange(len(labels))),
        own, tuple(map(str, range(federation.classes))), federation.normalisation,
    )  # fmt: skip
    model = random_ridge(data.shape, federation.classes, 64, 7, masked=federation.model.masked)
    return LocalFederation(data, list(torch.arange(len(labels)).split(sizes)), model)


def trained(federation: LocalFederation) -> State:
    return train(federation, state_of(federation.model), SCHEDULE)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(2, 4), st.lists(st.integers(0, 9), min_size=2, max_size=4), st.integers(0, 999))
def test_the_head_is_that_of_the_slow_twin(width: int, classes: int, sizes: list[int], seed: int):
    sizes[0] += 2
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), width, generator=generator)
    y = torch.randint(0, classes, (sum(sizes),), generator=generator)
    y[0] = classes - 1
    data = from_arrays(x, y, x, y, classes=[str(label) for label in range(classes)])
    federation = LocalFederation(data, list(torch.arange(len(y)).split(sizes)), Ridge(nn.ReLU(), width, classes))
    state = trained(federation)
    weight, bias = slow_twins.ridge_head(data.train.features.relu(), y, classes, REGULARISATION, GAIN)
    torch.testing.assert_close(state["head.weight"], weight, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(state["head.bias"], bias, rtol=1e-8, atol=1e-8)


def test_one_sample_of_one_feature_in_closed_form():
    """phi = (2, 1): A = [[4, 2], [2, 1]], tr A / d = 2.5, and W = phi / (phi^T phi + lambda) for its class."""
    x, y = torch.tensor([[2.0]]), torch.tensor([1])
    data = from_arrays(x, y, x, y, classes=["a", "b"])
    state = trained(LocalFederation(data, [torch.arange(1)], Ridge(nn.Identity(), 1, 2, regularisation=0.4)))
    torch.testing.assert_close(state["head.weight"], GAIN * torch.tensor([[0.0], [2 / 6]]).double())
    torch.testing.assert_close(state["head.bias"], GAIN * torch.tensor([0.0, 1 / 6]).double())


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
@pytest.mark.parametrize("kind", KINDS)
def test_forgetting_has_the_bits_of_a_training_without_the_target(name: str, kind: str, masked: bool):
    federation = world(name, masked=masked)
    before, request = trained(federation), target(federation, kind)
    made = forget(federation, before, request, SCHEDULE)
    expected = trained(without(federation, request))
    assert digest(made.state) == digest(expected)
    assert digest(made.state) != digest(before)
    assert (made.exact, len(made.assumed)) == (True, 2)
    assert [rung.word for rung in made.rungs] == ["exact"]  # type: ignore[attr-defined]
    assert made.rungs[0].reason.startswith("It is what the same training makes without the target")  # type: ignore[attr-defined]
    with_others = forget(federation, made.state, ErasureRequest.of_class(2, 1), SCHEDULE, served=[request]).state
    assert digest(with_others) != digest(made.state)
    assert digest(forget(federation, before, [request, ErasureRequest.of_class(2, 1)], SCHEDULE).state) == digest(
        with_others
    ), "one after the other or together is the same"


@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_masks_change_nothing_but_roundings(name: str):
    plain, hidden = trained(world(name)), trained(world(name, masked=True))
    assert 0 < distance(plain, hidden) < 1e-9 * float(plain["head.weight"].norm())


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_who_did_not_ask_makes_no_pass_over_its_data(masked: bool):
    federation = world(masked=masked)
    before, request = trained(federation), target(federation, "class")
    left = federation.check([request])[1].retained
    made = forget_with(federation, before, request, SCHEDULE, "retrain")
    assert made.cost.gradient_evaluations == FORWARD_COST * left
    again = forget_with(federation, before, request, SCHEDULE, "retrain")
    assert again.cost.gradient_evaluations == FORWARD_COST * left, "what was kept goes with the withdrawal"
    assert digest(again.state) == digest(made.state)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "another process"])
def test_the_forecast_is_what_it_costs(kept: bool):
    """Sums that a process kept end with it: then everybody goes through its data once more."""
    federation, said = world(), list[str]()
    before, request = trained(federation), target(federation, "class")
    if not kept:
        for k in federation.clients:
            federation.client(k).kept.clear()
    made = forget(federation, before, request, SCHEDULE, say=said.append)
    left = federation.check([request])[1].retained if kept else made.retrain / FORWARD_COST  # type: ignore[attr-defined]
    assert made.cost.gradient_evaluations == pytest.approx(FORWARD_COST * left)
    (rung,) = made.rungs  # type: ignore[attr-defined]
    share = rung.cost.gradient_evaluations / made.retrain  # type: ignore[attr-defined]
    assert rung.forecast == pytest.approx(share)
    assert said == [f"retrain: about {100 * share:.0f} % of a retraining."]


def test_kept_sums_are_those_of_these_very_samples():
    """An id stays where a sample is corrected, and the sums must not."""
    federation = world()
    before = trained(federation)
    client = federation.client(0)
    client.samples = client.samples.with_features(client.samples.features.flip(3))
    after = trained(federation)
    for k in federation.clients:
        federation.client(k).kept.clear()
    assert digest(trained(federation)) == digest(after) != digest(before)


def test_a_client_that_leaves_keeps_no_sums():
    federation = world()
    before = trained(federation)
    assert SUMS in federation.client(1).kept
    forget(federation, before, ErasureRequest.of_client(1), SCHEDULE)
    assert SUMS not in federation.client(1).kept


@pytest.mark.parametrize("kind", KINDS)
def test_new_data_five_times_do_not_bring_the_target_back(kind: str):
    data = load_dataset("digits").first(600)
    federation, more = world(samples=300), torch.arange(300, 600).split(60)
    before, request = trained(federation), target(federation, kind)
    state = forget(federation, before, request, SCHEDULE).state
    parts = partition("iid", data.train.labels[:300], 4, 0)
    for turn, fresh in enumerate(more):
        parts = [torch.cat([part, arrived]) for part, arrived in zip(parts, fresh.split(15), strict=True)]
        grown = LocalFederation(data, parts, federation.model)
        # What is new of the withdrawn class or feature is withdrawn too: the request stands for the client's data.
        state = run_round(grown, state, further_round(SCHEDULE, 1 + turn, [request]))
        assert digest(state) == digest(trained(without(grown, request)))


class Tapped(LocalFederation):
    """Writes down what comes back; replies of `lost` never come, and `change` may alter them."""

    lost: frozenset[int] = frozenset()
    spoil: bool = False

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            if isinstance(task, SendSums | SendMaskedSums) and reply.client in self.lost:
                continue
            if self.spoil and reply.client == 2 and reply.tensors:
                reply = replace(reply, tensors={name: tensor[..., 1:] for name, tensor in reply.tensors.items()})
            self.log.append((task, reply))
            yield reply

    @property
    def log(self) -> list[tuple[Task, Reply]]:
        return self.__dict__.setdefault("_log", [])


def tapped(masked: bool) -> Tapped:
    like = world(masked=masked)
    data = load_dataset("digits").first(300)
    return Tapped(data, partition("iid", data.train.labels, 4, 0), like.model)


def test_under_masks_the_server_sees_noise_of_every_client_and_new_noise_each_time():
    federation = tapped(masked=True)
    for _ in range(2):
        trained(federation)
    sent = [reply.tensors[BOTH] for task, reply in federation.log if isinstance(task, SendMaskedSums)]
    assert len(sent) == 8
    assert all(not torch.equal(sent[k], sent[k + 4]) for k in range(4)), "the same sums, other masks"
    for part in sent:
        bits = part.numpy().view("uint64") >> 63
        assert 0.45 < bits.mean() < 0.55
    assert {name for _, reply in federation.log for name in reply.tensors}.isdisjoint({GRAM, MOMENTS})


def test_two_totals_differ_by_the_moments_of_the_target():
    """What docs/security.md says: of one sample, the difference is its features and its label."""
    federation = tapped(masked=False)
    before = trained(federation)
    own = federation.client(1).samples
    request = ErasureRequest.of_samples(1, [int(own.ids[5])])
    first = next(reply for task, reply in federation.log if isinstance(task, SendSums) and reply.client == 1)
    federation.log.clear()
    forget(federation, before, request, SCHEDULE)
    second = next(reply for task, reply in federation.log if isinstance(task, SendSums) and reply.client == 1)
    with torch.no_grad():
        phi = federation.model.backbone(federation.normalisation(own.features[5:6])).double()[0]
    told = first.tensors[MOMENTS] - second.tensors[MOMENTS]
    torch.testing.assert_close(told[:-1, own.labels[5]], phi, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_a_total_that_is_not_whole_is_no_model(masked: bool):
    federation = tapped(masked)
    federation.lost = frozenset({2})
    with pytest.raises(Exception, match=r"masks did not cancel|Client 2 did not send its sums"):
        trained(federation)
    federation.lost, federation.spoil = frozenset(), True
    with pytest.raises(ClientError if not masked else Exception, match="Client 2 sent"):
        trained(federation)


def test_masks_need_three_clients_with_samples():
    data = load_dataset("digits").first(60)
    model = random_ridge(data.shape, 10, 16, 0, masked=True)
    federation = LocalFederation(data, list(torch.arange(60).split(20)), model)
    before = trained(federation)
    with pytest.raises(InputError, match="at least 3 clients that have something to add, but there are 2"):
        forget(federation, before, ErasureRequest.of_client(0), SCHEDULE)


@pytest.mark.parametrize("chosen", [{"method": "overwrite"}, {"at_most": "rebuild"}], ids=["a method", "a rung"])
def test_other_methods_are_refused_before_any_work(chosen: dict[str, str]):
    federation = world()
    before = trained(federation)
    with pytest.raises(InputError, match=r"^This federation has a ridge head, so a request has it solved again from"):
        forget(federation, before, target(federation, "class"), SCHEDULE, **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("resnet18", "vit-20m")])
def test_a_network_is_cut_before_its_last_linear_layer(name: str):
    """What is cut off, put on again, gives the network's own logits."""
    shape = (3, 16, 16)
    network = build_model(name, shape, 10, 0).eval()
    backbone, width, last = cut(network)
    x = torch.randn(4, *shape)
    with torch.no_grad():
        features = backbone.eval()(x)
        assert features.shape == (4, width)
        torch.testing.assert_close(network.get_submodule(last)(features), network(x))
    model = ridge_on(build_model(name, shape, 4, 1), 6, origin="a test", weights=network.state_dict())
    with torch.no_grad():
        assert torch.equal(model.train().backbone(x), features), "in evaluation mode, with the given weights"
    assert digest(model.backbone.state_dict())[:16] in model.assumed[0]
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {"head.weight", "head.bias"}


def test_weights_of_another_network_are_no_backbone():
    with pytest.raises(
        InputError, match=r"The backbone's weights are not those of this PaperCNN: they differ at '0\.weig"
    ):
        ridge_on(build_model("cnn", (1, 8, 8), 10, 0), 10, origin="a test",
                 weights=build_model("cnn", (3, 8, 8), 10, 0).state_dict())  # fmt: skip
    with pytest.raises(InputError, match="no linear layer to cut off"):
        cut(nn.Conv2d(1, 1, 3))


def test_no_data_is_no_model():
    federation = world()
    requests: Sequence[ErasureRequest] = [ErasureRequest.of_client(k) for k in range(4)]
    with pytest.raises(Exception, match="No client has a sample left"):
        run_round(federation, state_of(federation.model), SCHEDULE.train_task(0, requests))


def test_an_offer_of_a_client_without_samples_holds_no_key():
    federation = world(masked=True)
    offer = OfferSumKey(seed=0, threads=1, exclude=(ErasureRequest.of_client(1),))
    replies = {reply.client: reply for reply in federation.ask(offer, {})}
    assert not replies[1].tensors
    assert replies[0].tensors
    assert copy_state(replies[0].tensors)
