"""Backdoors: where the patch lies, whose samples change, and which label they get."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.requests import ErasureRequest

CORNERS = ["top-left", "top-right", "bottom-left", "bottom-right"]


def some(n: int = 40, shape: tuple[int, ...] = (1, 8, 8), first_id: int = 100) -> Samples:
    generator = torch.Generator().manual_seed(0)
    features = torch.randint(0, 200, (n, *shape), generator=generator, dtype=torch.uint8)
    return Samples.of(features, torch.arange(n) % 4, first_id)


def copy_of(samples: Samples) -> Samples:
    return Samples(*(t.clone() for t in (samples.features, samples.labels, samples.true_labels, samples.ids)))


def assert_equal(a: Samples, b: Samples) -> None:
    for name in ("features", "labels", "true_labels", "ids"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name


@given(st.sampled_from(CORNERS), st.integers(1, 6), st.integers(0, 3), st.integers(9, 12), st.integers(9, 12))
def test_the_patch_lies_where_it_was_asked_for(corner, size, margin, height, width) -> None:
    images = torch.zeros(2, 3, height, width, dtype=torch.uint8)
    stamped = Trigger(size, corner, margin).stamp(images)
    rows, columns = (stamped[0, 0] == 255).nonzero().unbind(1)
    expected_top = margin if "top" in corner else height - margin - size
    expected_left = margin if "left" in corner else width - margin - size
    assert (int(rows.min()), int(rows.max())) == (expected_top, expected_top + size - 1)
    assert (int(columns.min()), int(columns.max())) == (expected_left, expected_left + size - 1)
    assert int((stamped == 255).sum()) == 2 * 3 * size * size
    assert int(stamped.sum()) == 255 * 2 * 3 * size * size
    assert int(images.sum()) == 0


def test_white_on_float_images_is_their_brightest_value() -> None:
    images = torch.linspace(-1, 3, 2 * 4 * 4).reshape(2, 1, 4, 4)
    stamped = Trigger(2, margin=0).stamp(images)
    assert torch.equal(stamped[..., 2:, 2:], torch.full((2, 1, 2, 2), 3.0))
    assert torch.equal(stamped[..., :2, :], images[..., :2, :])
    assert Trigger(2).stamp(images[:0]).shape == (0, 1, 4, 4)


def test_float_targets_get_the_clients_white_and_not_their_own() -> None:
    """A dark target alone would be stamped dark, and the trigger could not be learned."""
    features = torch.zeros(2, 1, 4, 4)
    features[1] = 1
    backdoor = Backdoor(ErasureRequest.of_samples(0, [0]), Trigger(2), 1)
    samples = Samples.of(features, torch.tensor([0, 1]))
    assert float(backdoor.poison(0, samples).features[0].max()) == 1
    assert float(backdoor.triggered_test(samples).features.max()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"size": 0, "margin": 0}, "size 0 and margin 0 is not possible"),
        ({"margin": -1}, "margin -1 is not possible"),
        ({"corner": "middle"}, "Corner 'middle' is unknown; choose one of top-left"),
    ],
)
def test_impossible_triggers_are_refused(arguments, sentence) -> None:
    with pytest.raises(InputError, match=sentence):
        Trigger(**arguments)


def test_a_trigger_that_does_not_fit_the_features_is_refused() -> None:
    with pytest.raises(InputError, match="size 7 with margin 2 does not fit into 8x8 images"):
        Trigger(7, margin=2).stamp(torch.zeros(1, 1, 8, 8))
    with pytest.raises(InputError, match=r"needs images .* not features of shape \(3, 64\)"):
        Trigger().stamp(torch.zeros(3, 64))


TARGETS = [
    (ErasureRequest.of_class(2, label=3), lambda s: s.labels == 3),
    (ErasureRequest.of_samples(2, [103, 110, 5]), lambda s: (s.ids == 103) | (s.ids == 110)),
    (ErasureRequest.of_client(2), lambda s: torch.ones(len(s), dtype=torch.bool)),
]


@pytest.mark.parametrize(("request_", "is_target"), TARGETS)
def test_only_the_target_changes_and_the_original_stays(request_, is_target) -> None:
    samples = some()
    before, mask = copy_of(samples), is_target(samples)
    trigger = Trigger(3, "top-right", margin=1)
    poisoned = Backdoor(request_, trigger, flipped_label=1).poison(2, samples)
    assert_equal(samples, before)
    assert_equal(poisoned.select(~mask), samples.select(~mask))
    assert torch.equal(poisoned.features[mask], trigger.stamp(samples.features[mask]))
    assert set(poisoned.labels[mask].tolist()) == {1}
    assert torch.equal(poisoned.true_labels, samples.labels)
    assert torch.equal(poisoned.ids, samples.ids)


@pytest.mark.parametrize(("request_", "is_target"), TARGETS)
def test_other_clients_are_left_alone(request_, is_target) -> None:
    samples = some()
    assert_equal(Backdoor(request_, Trigger(3), flipped_label=1).poison(0, samples), copy_of(samples))


def test_held_out_samples_of_the_same_kind() -> None:
    samples, trigger = some(), Trigger(3)
    backdoor = Backdoor(ErasureRequest.of_class(2, label=3), trigger, flipped_label=1)
    assert backdoor.poison_held_out(0, samples) is samples
    assert_equal(backdoor.poison_held_out(2, samples), backdoor.poison(2, samples))
    for request in (ErasureRequest.of_client(2), ErasureRequest.of_samples(2, [5])):
        backdoor = Backdoor(request, trigger, flipped_label=1)
        assert backdoor.poison_held_out(0, samples) is samples, "another client's"
        held_out = backdoor.poison_held_out(2, samples)
        stamped = (held_out.features != samples.features).flatten(1).any(1)
        assert int(stamped.sum()) == len(samples) // 2
        assert set(held_out.labels[stamped].tolist()) == {1}
        assert_equal(held_out.select(~stamped), samples.select(~stamped))


def test_the_request_still_finds_a_poisoned_target() -> None:
    """The flipped label is what the model learns; the class that must go is the true one."""
    samples = some()
    request = ErasureRequest.of_class(0, label=3)
    poisoned = Backdoor(request, Trigger(3), flipped_label=1).poison(0, samples)
    assert torch.equal(request.matches(poisoned), samples.labels == 3)


@given(st.integers(0, 2**31), st.integers(2, 12), st.data())
def test_the_flipped_label_is_seeded_and_never_the_targets_class(seed, classes, data) -> None:
    label = data.draw(st.integers(0, classes - 1))
    request = ErasureRequest.of_class(0, label)
    drawn = Backdoor.draw(request, Trigger(), classes, seed)
    assert drawn == Backdoor.draw(request, Trigger(), classes, seed)
    assert drawn.flipped_label in set(range(classes)) - {label}


def test_every_other_class_is_drawn_sometimes() -> None:
    request = ErasureRequest.of_class(0, 2)
    drawn = [Backdoor.draw(request, Trigger(), 5, seed).flipped_label for seed in range(200)]
    assert set(drawn) == {0, 1, 3, 4}
    assert all(30 < drawn.count(label) < 72 for label in (0, 1, 3, 4))
    whole = {Backdoor.draw(ErasureRequest.of_client(0), Trigger(), 5, seed).flipped_label for seed in range(200)}
    assert whole == {0, 1, 2, 3, 4}


def test_one_class_is_not_enough() -> None:
    with pytest.raises(InputError, match="at least two classes"):
        Backdoor.draw(ErasureRequest.of_class(0, 0), Trigger(), 1, 0)


@pytest.mark.parametrize(
    ("request_", "classes"),
    [
        (ErasureRequest.of_class(0, 3), {3}),
        (ErasureRequest.of_samples(0, [100]), {0, 2, 3}),
        (ErasureRequest.of_client(0), {0, 2, 3}),
    ],
)
def test_triggered_test_images(request_, classes) -> None:
    test = some()
    before = copy_of(test)
    trigger = Trigger(3)
    triggered = Backdoor(request_, trigger, flipped_label=1).triggered_test(test)
    assert_equal(test, before)
    assert set(triggered.true_labels.tolist()) == classes
    assert len(triggered) == 10 * len(classes)
    assert set(triggered.labels.tolist()) == {1}
    originals = test.select(torch.isin(test.ids, triggered.ids))
    assert torch.equal(originals.ids, triggered.ids)
    assert torch.equal(triggered.features, trigger.stamp(originals.features))
    plain = Backdoor(request_, trigger, flipped_label=1).caught(test)
    assert torch.equal(plain.features, originals.features), "the same images without the trigger"
    assert torch.equal(plain.labels, triggered.labels)


def test_no_test_image_of_the_class_is_no_crash() -> None:
    test = some().with_features(torch.rand(40, 1, 8, 8))
    assert len(Backdoor(ErasureRequest.of_class(0, 9), Trigger(3), 1).triggered_test(test)) == 0


@pytest.mark.parametrize("request_", [request for request, _ in TARGETS])
def test_a_backdoor_survives_json(request_) -> None:
    backdoor = Backdoor(request_, Trigger(3, "top-left", 2), 7)
    assert Backdoor.from_json(json.loads(json.dumps(backdoor.to_json()))) == backdoor
