"""The cache of the oracle ensemble: nothing is trained twice, nothing damaged is trusted, interruptions cost little."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import small_worlds
from oracle_worlds import CLASS, EARLIER, SCHEDULE, World, digests, oracles, world
from torch import nn

from fedforget.audit.oracles import oracle_ingredients, oracle_key, oracle_schedule, shared_ingredients
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule
from fedforget.models import Start, begins_with, reset_layers
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs.store import write_sealed


def test_nothing_is_trained_twice(tmp_path: Path):
    federation = world()
    first = oracles(federation, 3, tmp_path)
    once = len(federation.trained)
    again = oracles(federation, 3, tmp_path)
    assert len(federation.trained) == once
    assert digests(again) == digests(first)
    assert [list(state) for state in again] == [list(federation.model.state_dict())] * 3, "in the model's own order"
    more = oracles(federation, 4, tmp_path)
    assert len(federation.trained) == once + SCHEDULE.rounds * 4, "one more"
    assert digests(more[:3]) == digests(first)
    assert {path.name.partition(".")[2] for path in tmp_path.iterdir()} == {"json", "safetensors"}
    assert len(list(tmp_path.iterdir())) == 8


def test_the_keys_of_older_caches_stay_as_they_were():
    """Nothing that a user has in a cache is trained again, but for what an older version trained as a stack."""
    older = "c3e60a43c39470f114b4a23b695bb5eafc65aa2eb0d0a22a3524e2d9a0d0a8f5"
    schedule = Schedule(rounds=3, lr=0.05, batch_size=8, seed=7, threads=1)
    assert oracle_key(oracle_ingredients({"data": "points"}, schedule)) == older


def test_a_caller_that_has_the_retrained_model_hands_it_over():
    federation = world()
    (known,) = oracles(federation, 1)
    federation.log.clear()
    models = oracles(federation, 2, retrained=known)
    assert digest(models[0]) == digest(known)
    assert {task.seed for task in federation.trained} == {oracle_schedule(SCHEDULE, 1).seed}
    models[0]["0.weight"].zero_()
    assert bool(known["0.weight"].any())


INGREDIENTS: dict[str, Callable[[], tuple[LocalFederation, Sequence[ErasureRequest], str]]] = {
    "data": lambda: (world(), [CLASS], "other points"),
    "request": lambda: (world(), [ErasureRequest.of_class(0, 2)], "points"),
    "served": lambda: (world(), [EARLIER, CLASS], "points"),
    "tensors": lambda: (world(nn.Linear(6, 3)), [CLASS], "points"),
    "activation": lambda: (
        world(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Linear(10, 3)), [CLASS], "points"
    ),
    "class": lambda: (renamed(), [CLASS], "points"),
    "frozen": lambda: (frozen(), [CLASS], "points"),
    "sizes": lambda: (small_worlds.federation((31, 19, 25, 15), normalised=True), [CLASS], "points"),
    "clients": lambda: (small_worlds.federation((30, 20, 40), normalised=True), [CLASS], "points"),
    "erased": lambda: (remembering(), [CLASS], "points"),
    "start": lambda: (beginning(reset_layers), [CLASS], "points"),
    "initial weights": lambda: (beginning(lambda model, seed: model), [CLASS], "points"),
}  # fmt: skip


class OtherNetwork(nn.Sequential):
    def _get_name(self) -> str:
        return "Sequential"


def renamed() -> World:
    made = world()
    made.model.__class__ = OtherNetwork
    return made


def beginning(start: Start) -> World:
    made = world()
    begins_with(made.model, start)
    return made


def frozen() -> World:
    made = world()
    made.model[0].weight.requires_grad_(False)  # type: ignore[index,union-attr]
    return made


def remembering() -> World:
    made = world()
    made.client(3).withdraw([ErasureRequest.of_class(3, 0)])
    return made


def key(federation: LocalFederation, exclude: Sequence[ErasureRequest], data: str, schedule: Schedule) -> str:
    return oracle_key(oracle_ingredients(shared_ingredients(federation, exclude, SCHEDULE, data), schedule))


@pytest.mark.parametrize("ingredient", INGREDIENTS)
def test_the_key_changes_with_every_ingredient(ingredient: str):
    same = key(world(), [CLASS], "points", SCHEDULE)
    assert key(world(), [CLASS], "points", SCHEDULE) == same
    assert key(*INGREDIENTS[ingredient](), SCHEDULE) != same


def test_the_key_changes_with_every_number_of_the_schedule(monkeypatch: pytest.MonkeyPatch):
    shared = shared_ingredients(world(), [CLASS, EARLIER], SCHEDULE, "points")
    schedules = [SCHEDULE, oracle_schedule(SCHEDULE, 1)]
    schedules += [
        replace(SCHEDULE, **{name: 0.5 if name in ("momentum", "decay", "participation") else value * 2})
        for name, value in asdict(SCHEDULE).items()
    ]
    ways = [oracle_ingredients(shared, schedule) for schedule in schedules]
    ways += [{**ways[0], "device": "cuda"}]
    monkeypatch.setattr("fedforget.__version__", "99.0")
    ways += [oracle_ingredients(shared_ingredients(world(), [CLASS, EARLIER], SCHEDULE, "points"), SCHEDULE)]
    assert len({oracle_key(way) for way in ways}) == len(ways) == 2 + 9 + 2
    turned = oracle_ingredients({**shared_ingredients(world(), [EARLIER, CLASS, CLASS], SCHEDULE, "points")}, SCHEDULE)
    assert oracle_key(turned) == oracle_key(ways[-1]), "their order and repetition change no bit"


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": _truncate,
    "a bit flipped": _flip,
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "no JSON object": lambda path: path.write_text("[1, 2]"),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """(a folder with two oracles, their digests)."""
    folder = tmp_path_factory.mktemp("two") / "oracles"
    return folder, digests(oracles(world(), 2, folder))


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two of the three rounds of an oracle."""
    folder = tmp_path_factory.mktemp("half") / "oracles"
    federation = world()
    federation.cut_after = 10
    with pytest.raises(KeyboardInterrupt):
        oracles(federation, 1, folder)
    return folder


@pytest.mark.daily(3)
@pytest.mark.parametrize("ending", ["json", "safetensors"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_made_anew(two: tuple[Path, list[str]], tmp_path: Path, damage: str, ending: str):
    federation, folder = world(), tmp_path / "copy"
    shutil.copytree(two[0], folder)
    DAMAGES[damage](folder / f"{entry_of(1, federation)}.{ending}")
    assert digests(oracles(federation, 2, folder)) == two[1]
    assert {task.seed for task in federation.trained} == {oracle_schedule(SCHEDULE, 1).seed}
    federation.log.clear()
    oracles(federation, 2, folder)
    assert not federation.trained, "and kept again"


def entry_of(number: int, federation: LocalFederation) -> str:
    return key(federation, [CLASS], "points", oracle_schedule(SCHEDULE, number))


def test_an_entry_of_another_key_is_not_trusted(two: tuple[Path, list[str]], tmp_path: Path):
    federation, folder = world(), tmp_path / "copy"
    shutil.copytree(two[0], folder)
    zero, one = (folder / f"{entry_of(number, federation)}.json" for number in (0, 1))
    one.write_bytes(zero.read_bytes())
    assert digests(oracles(federation, 2, folder)) == two[1]
    note = json.loads(one.read_text())
    assert note["ingredients"]["schedule"]["seed"] == oracle_schedule(SCHEDULE, 1).seed, "for a person to read"
    write_sealed(one, {"key": one.stem})
    assert digests(oracles(federation, 2, folder)) == two[1]


@pytest.mark.real
@pytest.mark.parametrize("cut", [2, 5, 13, 19])
def test_interrupted_in_the_middle_it_goes_on_with_the_rounds_done(tmp_path: Path, cut: int):
    """12 replies are one oracle."""
    whole = world()
    expected = digests(oracles(whole, 3))
    federation = world()
    federation.cut_after = cut
    with pytest.raises(KeyboardInterrupt):
        oracles(federation, 3, tmp_path)
    federation.cut_after = None
    federation.log.clear()
    seen: list[tuple[str, int, int]] = []
    again = oracles(federation, 3, tmp_path, progress=lambda *told: seen.append(told))
    assert digests(again) == expected
    # The round that was cut off was begun with a reply that did not count: at most its 4 replies are repeated.
    assert len(federation.trained) == len(whole.trained) - (cut - 1) // 4 * 4
    assert {what for what, _, _ in seen} == {"oracles"}
    assert seen[-1][1] == seen[-1][2]
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert not list(tmp_path.glob("*unfinished*"))


@pytest.mark.daily(3)
@pytest.mark.parametrize("ending", ["json", "safetensors"])
@pytest.mark.parametrize("damage", [None, *DAMAGES])
def test_a_damaged_round_is_not_gone_on_with(
    two: tuple[Path, list[str]], half: Path, tmp_path: Path, damage: str | None, ending: str
):
    federation, folder = world(), tmp_path / "copy"
    shutil.copytree(half, folder)
    for path in folder.glob(f"*.unfinished*{ending}"):
        if damage is not None:
            DAMAGES[damage](path)
    assert digests(oracles(federation, 1, folder)) == two[1][:1]
    assert len(federation.trained) == (4 if damage is None else 12)


@pytest.mark.parametrize("change", [{"data": "others"}, {"served": [EARLIER]}])
def test_rounds_of_another_oracle_are_not_gone_on_with(half: Path, tmp_path: Path, change: dict[str, Any]):
    folder = tmp_path / "copy"
    shutil.copytree(half, folder)
    with_rounds, without = world(), world()
    assert digests(oracles(with_rounds, 1, folder, **change)) == digests(oracles(without, 1, **change))
    assert len(without.trained) == len(with_rounds.trained)


def test_an_oracle_that_a_client_missed_is_not_kept(tmp_path: Path):
    """A federation on other machines goes on without a client that is away."""
    federation = world()
    federation.away = 3
    missing = oracles(federation, 1, tmp_path)
    assert not tmp_path.exists() or not list(tmp_path.iterdir())
    federation.away = None
    assert digests(oracles(federation, 1, tmp_path)) == digests(oracles(world(), 1)) != digests(missing)
