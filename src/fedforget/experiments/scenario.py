"""A scenario: one federation with a poisoned target, trained once; every method branches from that model.

The trained model is kept in memory while its scenario is worked on, and under OUT/models/ for a run that is taken up
again and for other experiments. A file that is damaged counts as missing: the model is trained again."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedforget.audit.measures import measure, share_as_trained
from fedforget.audit.membership import KEPT_BY_AUDIT
from fedforget.data import load_dataset
from fedforget.data.backdoor import Backdoor
from fedforget.data.files import make_folder, write_bytes
from fedforget.data.partition import partition
from fedforget.errors import DivergedError
from fedforget.experiments.configurations import ASKING_CLIENT
from fedforget.experiments.options import Options
from fedforget.experiments.targets import MIXED, mixed_requests, poisoned_part, request_for, triggers_of
from fedforget.federation.evaluation import Evaluation, evaluate
from fedforget.federation.history import MemoryHistory
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import drawn, train
from fedforget.federation.seam import thread_count
from fedforget.federation.shards import Ensemble
from fedforget.federation.tasks import Measure
from fedforget.methods import Forgetting, forget
from fedforget.models import build_model
from fedforget.params import State, copy_state, state_of
from fedforget.requests import ErasureRequest, Feature, target_mask


@dataclass(frozen=True)
class ScenarioSpec:
    """Which classes of the asking client are the target, or which `target` instead of classes ("samples500", "half",
    "client", or "mixed", see `mixed_requests`), under which seed, and whether it is poisoned."""

    labels: tuple[int, ...]
    seed: int
    poisoned: bool = True
    target: str | None = None
    configuration: str | None = None
    """Where it is not the user's. The name does not tell it: a cell's `setting` or its experiment does."""
    data_seed: int | None = None
    """Decides who holds what, what is asked for and the wrong labels, where `seed` does not: one target for several
    trainings."""
    client: int | None = None
    """Who asks, where it is not the one that the configuration picks."""
    feature: Feature | None = None
    """What the first `askers` clients withdraw, where it is a feature."""
    askers: int = 1
    shards: int = 1
    """How many federations are trained apart (`federation.shards`)."""

    @property
    def name(self) -> str:
        what = self.target or f"class{'-'.join(map(str, self.labels))}"
        if self.feature is not None:
            what = f"feature{'-'.join(map(str, self.feature))}x{self.askers}"
        who = "" if self.client is None else f"-of{self.client}"
        apart = "" if self.shards == 1 else f"/{self.shards}shards"
        return f"{'' if self.poisoned else 'clean-'}{what}{who}/seed{self.seed}{apart}"

    def requests(self, client: int, client_ids: Tensor, seed: int) -> tuple[ErasureRequest, ...]:
        """What the client that holds these samples asks for: one request after another."""
        if self.feature is not None:
            return tuple(ErasureRequest.of_feature(client, self.feature) for client in range(self.askers))
        names = (self.target,) if self.target else tuple(f"class{label}" for label in self.labels)
        return tuple(request_for(name, client, client_ids, seed) for name in names)


class Bench:
    """What all scenarios of one run share: the data, and a network as a workspace."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.configuration = options.settings
        dataset = load_dataset(options.dataset)
        some = self.configuration.quick_samples if options.quick else self.configuration.samples
        self.dataset = dataset if some is None else dataset.first(*some)
        first, count = len(self.dataset.train), self.configuration.held_out
        self.held_out = dataset.train.select(torch.arange(first, first + count)) if count else None
        self.model = build_model(self.configuration.model, dataset.shape, len(dataset.classes), options.seed)
        self.digest = self.dataset.digest()
        self._benches = {options.configuration: self}

    def scenario(self, spec: ScenarioSpec, *, needs_history: bool = False) -> Scenario:
        name = spec.configuration or self.options.configuration
        if name not in self._benches:
            self._benches[name] = Bench(replace(self.options, configuration=name))
        return Scenario(self._benches[name], spec, needs_history)


class Scenario:
    """One federation, the requests to serve in it, and the model before unlearning."""

    def __init__(self, bench: Bench, spec: ScenarioSpec, needs_history: bool) -> None:
        self.bench, self.spec = bench, spec
        self.options, self.configuration, self.dataset = bench.options, bench.configuration, bench.dataset
        self.schedule = self.configuration.schedule(spec.seed, self.options.threads)
        classes = len(self.dataset.classes)
        scheme, clients = self.configuration.partition, self.configuration.clients
        data_seed = spec.seed if spec.data_seed is None else spec.data_seed
        parts = partition(scheme, self.dataset.train.labels, clients, data_seed)
        self.parts = parts
        held = [self.dataset.train.ids[part] for part in parts]
        if spec.target == MIXED:
            self.requests, triggers = mixed_requests(
                held, self.configuration.trigger, self.dataset.shape[-1], data_seed
            )
        else:
            asking = self._asking(parts)
            self.requests = spec.requests(asking, held[asking], data_seed)
            triggers = triggers_of(self.configuration.trigger, len(self.requests))
        self.backdoors = tuple(
            Backdoor.draw(poisoned_part(request, held[request.client], data_seed), trigger, classes, data_seed)
            for request, trigger in (zip(self.requests, triggers, strict=True) if spec.poisoned else ())
        )
        network = build_model(self.configuration.model, self.dataset.shape, classes, spec.seed)
        ensemble = None if spec.shards == 1 else Ensemble(network, spec.shards, spec.seed)
        self.initial = state_of(ensemble or network)
        self.federation = LocalFederation(
            self.dataset,
            parts,
            ensemble or bench.model,
            backdoors=self.backdoors,
            held_out=bench.held_out,
            device=self.options.device,
        )
        self.federation.check(self.requests)
        self.history = MemoryHistory() if needs_history else None
        self._models: dict[str, State] = {}
        self.kept: dict[str, Any] = {}
        """Whatever an experiment wants to find again in a later cell of this scenario."""

    def _asking(self, parts: Sequence[Tensor]) -> int:
        """Who asks. Where clients differ: of those who trained in the last round, so that there is something to forget,
        the one who holds most of the classes in question."""
        if self.spec.client is not None:
            return self.spec.client
        if self.configuration.alike:
            return ASKING_CLIENT
        last = self.schedule.train_task(self.schedule.rounds - 1)
        wanted = torch.tensor(self.spec.labels or tuple(range(len(self.dataset.classes))))
        labels = self.dataset.train.labels
        return max(
            drawn(range(len(parts)), last), key=lambda client: int(torch.isin(labels[parts[client]], wanted).sum())
        )

    @property
    def before(self) -> State:
        """The model before unlearning; a history that is not there yet is recorded by training once more."""
        if self.history is not None and not self.history.rounds:
            return self.remember("before", self._train, anew=True)
        return self.remember("before", self._train)

    def _train(self) -> State:
        return train(self.federation, self.initial, self.schedule, history=self.history)

    def remember(self, name: str, make: Callable[[], State], *, anew: bool = False) -> State:
        """The model `name` of this scenario: from memory, from the disk, or made now and kept."""
        if anew or name not in self._models:
            path = self._path(name)
            state = None if anew else load_kept(path)
            if state is None:
                state = make()
                keep(path, state)
            self._models[name] = copy_state(state, self.federation.device)
        return self._models[name]

    def _path(self, name: str) -> Path:
        """Named by all that the model's bits depend on."""
        options, c = self.options, self.configuration
        depends = {
            "data": self.bench.digest, "model": c.model, "clients": c.clients, "partition": c.partition,
            "schedule": asdict(self.schedule), "backdoors": [b.to_json() for b in self.backdoors],
            "device": torch.device(options.device).type,
        }  # fmt: skip
        if self.spec.shards > 1:
            depends["shards"] = self.spec.shards
        tag = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:12]
        target = self.spec.name if self.spec.poisoned else f"clean/seed{self.spec.seed}"
        stem = "-".join([*options.labels, *target.split("/"), name, tag])
        return options.out / "models" / f"{stem}.model"

    def forget(
        self,
        method: str,
        preset: str,
        overrides: Mapping[str, Any] | None = None,
        *,
        state: Mapping[str, Tensor] | None = None,
        requests: Sequence[ErasureRequest] | None = None,
        served: Sequence[ErasureRequest] = (),
    ) -> Forgetting:
        """Serve `requests` (default: all of the scenario's) on `state` (default: the model before unlearning). Clients
        keep nothing from the cell before but what the audit keeps there: a sketch that is found ready would make this
        one's bill too small."""
        before = self.before if state is None else state
        for client in self.federation.clients:
            kept = self.federation.client(client).kept
            for name in [name for name in kept if not name.startswith(KEPT_BY_AUDIT)]:
                del kept[name]
        asked = self.requests if requests is None else tuple(requests)
        own = self.configuration.overrides_of(method, preset, overrides)
        return forget(
            self.federation, before, asked, self.schedule, method, preset,
            served=served, history=self.history, **own,
        )  # fmt: skip

    def measure(self, state: Mapping[str, Tensor], requests: Sequence[ErasureRequest] | None = None) -> dict[str, Any]:
        """A model's figures on the target, on the retained and on the test data, in percent. A model whose predictions
        are no numbers is refused: argmax would still give it an accuracy."""
        asked = self.requests if requests is None else requests
        backdoor = self.backdoors[0] if len(self.backdoors) == 1 else None
        figures = measure(
            self.federation, state, asked, self.dataset.test,
            backdoor=backdoor, seed=self.spec.seed, threads=self.options.threads,
        )  # fmt: skip
        if figures.target_loss is not None and not math.isfinite(figures.target_loss):
            raise DivergedError("The unlearned model", "its weights are finite, but what it predicts is not.")
        return figures.to_json()

    def bd_acc(self, state: Mapping[str, Tensor], request: ErasureRequest) -> float | None:
        """BD Acc of one request's target; None where nothing of it was poisoned."""
        task = Measure(seed=self.spec.seed, threads=self.options.threads, requests=(request,))
        (reply,) = self.federation.ask(task, state, [request.client])
        target = Evaluation.from_numbers(reply.numbers, "target")
        return 100.0 * target.flipped_hits / target.evidence if target.evidence else None

    def bd_acc_plain(self, state: Mapping[str, Tensor], request: ErasureRequest) -> float | None:
        """How often the same images get the flipped label without their trigger: so much of BD Acc is no memory of the
        backdoor, but one class taken for another."""
        client = self.federation.client(request.client)
        flipped = target_mask((request,), request.client, client.samples)
        flipped &= client.samples.labels != client.samples.true_labels
        clean = self.dataset.train.features[self.parts[request.client]][flipped]
        with thread_count(self.options.threads):
            client.load(state)
            found = evaluate(
                client.model, client.samples.select(flipped).with_features(clean), client.normalisation, client.device
            )
        return share_as_trained(found)

    def figures_before(self, requests: Sequence[ErasureRequest] | None = None) -> dict[str, Any]:
        """BD Acc and test accuracy of the model before unlearning, measured once for these requests (default: all)."""
        asked = self.requests if requests is None else tuple(requests)
        known = self.kept.setdefault("before", {})
        if asked not in known:
            now = self.measure(self.before, asked)
            known[asked] = {f"{name}_before": now[name] for name in ("bd_acc", "test_acc")}
        return dict(known[asked])


def keep(path: Path, state: Mapping[str, Tensor]) -> None:
    """A model with its checksum before it. In torch's own format: safetensors is not on every machine."""
    buffer = io.BytesIO()
    torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, buffer)
    data = buffer.getvalue()
    make_folder(path.parent)
    write_bytes(path, hashlib.sha256(data).digest() + data)


def load_kept(path: Path) -> State | None:
    """What `keep` wrote, or None where there is no whole file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    checksum, data = content[:32], content[32:]
    if hashlib.sha256(data).digest() != checksum:
        return None
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
