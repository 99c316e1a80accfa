"""Erasure requests: what they match, how they travel, and what is refused."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.requests import (
    ErasureRequest,
    describe_requests,
    requests_id,
    target_mask,
    withdrawn_features,
    withdrawn_mask,
)

requests_ = st.one_of(
    st.builds(ErasureRequest.of_class, st.integers(0, 50), st.integers(0, 50)),
    st.builds(ErasureRequest.of_samples, st.integers(0, 50), st.lists(st.integers(0, 2**31), min_size=1)),
    st.builds(ErasureRequest.of_client, st.integers(0, 50)),
)


def poisoned_samples() -> Samples:
    """Six samples with ids from 10; the class 1 ones carry a flipped label, and a class 0 one was flipped to 1."""
    true = torch.tensor([0, 0, 1, 1, 2, 2])
    labels = torch.tensor([0, 1, 2, 2, 2, 2])
    return Samples(torch.zeros(6, 3), labels, true, torch.arange(10, 16))


@given(request=requests_)
def test_json_round_trip(request):
    assert ErasureRequest.from_json(json.loads(json.dumps(request.to_json()))) == request


def test_json_holds_only_what_the_kind_needs():
    assert ErasureRequest.of_class(0, 3).to_json() == {"client": 0, "kind": "class", "label": 3}
    assert ErasureRequest.of_samples(1, [4, 2]).to_json() == {"client": 1, "kind": "samples", "sample_ids": [2, 4]}
    assert ErasureRequest.of_client(2).to_json() == {"client": 2, "kind": "client"}


def test_sample_lists_are_sets():
    expected = ErasureRequest.of_samples(0, [1, 2, 3])
    assert ErasureRequest.of_samples(0, torch.tensor([3, 1, 2, 3])) == expected
    assert ErasureRequest.from_json({"client": 0, "kind": "samples", "sample_ids": [3, 1, 2, 1]}) == expected


@given(requests=st.lists(requests_, min_size=1, max_size=4, unique=True))
def test_the_id_of_requests_does_not_depend_on_order_or_repetition(requests):
    ids = {requests_id(order) for order in itertools.permutations(requests)}
    assert len(ids) == 1
    assert ids == {requests_id([*requests, requests[0]])}


@given(first=st.lists(requests_, max_size=3), second=st.lists(requests_, max_size=3))
def test_different_requests_have_different_ids(first, second):
    assert (requests_id(first) == requests_id(second)) == (set(first) == set(second))


def test_the_id_is_stable():
    """Run folders are named by it, so it must never change."""
    assert requests_id([ErasureRequest.of_class(0, 3)]) == "7fd7bb6c69"
    assert requests_id([ErasureRequest.of_client(2), ErasureRequest.of_samples(1, [5, 9])]) == "e439ebe67b"


def test_a_class_means_the_true_label_also_where_it_was_poisoned():
    mask = ErasureRequest.of_class(0, 1).matches(poisoned_samples())
    assert mask.tolist() == [False, False, True, True, False, False]


def test_samples_and_clients():
    samples = poisoned_samples()
    assert ErasureRequest.of_samples(0, [11, 15, 99]).matches(samples).nonzero()[:, 0].tolist() == [1, 5]
    assert ErasureRequest.of_client(0).matches(samples).all()


def test_the_mask_joins_a_clients_own_requests_only():
    own = [ErasureRequest.of_class(3, 2), ErasureRequest.of_samples(3, [10])]
    others = [ErasureRequest.of_client(1), ErasureRequest.of_class(0, 1)]
    mask = target_mask([*own, *others], 3, poisoned_samples())
    assert mask.tolist() == [True, False, False, False, True, True]
    assert not target_mask(others, 3, poisoned_samples()).any()
    assert not target_mask([], 3, poisoned_samples()).any()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ErasureRequest.of_class(-1, 3), "Client -1 does not exist; clients are numbered from 0."),
        (lambda: ErasureRequest.of_class(0, -3), "A class request must name the class to forget, a number from 0."),
        (lambda: ErasureRequest(0, "class"), "A class request must name the class to forget, a number from 0."),
        (
            lambda: ErasureRequest.of_samples(0, []),
            "The target is empty: a sample request must list at least one sample id.",
        ),
        (
            lambda: ErasureRequest.from_json({"client": 0, "kind": "colour"}),
            "Target 'colour' is unknown; choose one of class, samples, client, feature.",
        ),
    ],
)
def test_requests_that_name_nothing_are_refused(make, sentence):
    with pytest.raises(InputError) as refusal:
        make()
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        (("2", {"label": "3"}), ErasureRequest.of_class(2, 3)),
        ((2, {"samples": "4; 2,\n9 4"}), ErasureRequest.of_samples(2, [2, 4, 9])),
        ((2, {"samples": [4, 2]}), ErasureRequest.of_samples(2, [2, 4])),
        (("2", {"feature": "1,1,2,2"}), ErasureRequest.of_feature(2, [1, 1, 2, 2])),
        ((2, {"feature": 7}), ErasureRequest.of_feature(2, 7)),
        (("2", {"whole": True}), ErasureRequest.of_client(2)),
    ],
)
def test_a_target_is_parsed_from_words_and_from_numbers(words, request_):
    client, target = words
    assert ErasureRequest.parse(client, **target) == request_


@pytest.mark.parametrize(
    ("client", "target", "sentence"),
    [
        (None, {"label": 3}, "Name one target, and whose it is: here or there."),
        (0, {}, "Name one target, and whose it is: here or there."),
        (0, {"label": 3, "whole": True}, "Name one target, and whose it is: here or there."),
        (0, {"label": 0, "samples": ""}, "Name one target, and whose it is: here or there."),
        ("zero", {"label": 3}, "'zero' is no client; give a whole number."),
        ("0", {"label": "3.5"}, "'3.5' is no class; give a whole number."),
        ("0", {"samples": "1 0x2"}, "'0x2' is no sample id; give a whole number."),
        ("0", {"samples": "9" * 19}, f"'{'9' * 19}' is no sample id; give a whole number."),
        ("0", {"samples": "٣"}, "'٣' is no sample id; give a whole number."),
        ("0", {"samples": " "}, "The target is empty: a sample request must list at least one sample id."),
        ("0", {"feature": "1,2"}, "'1,2' is no feature; give the number of a column, or a patch as top,left,"),
        ("-1", {"whole": True}, "Client -1 does not exist; clients are numbered from 0."),
    ],
)
def test_what_names_no_target_is_refused_in_a_sentence(client, target, sentence):
    with pytest.raises(InputError) as refusal:
        ErasureRequest.parse(client, **target, names="here or there")
    assert str(refusal.value).startswith(sentence)


def test_a_feature_is_a_column_or_a_patch():
    column, patch = ErasureRequest.of_feature(2, 7), ErasureRequest.of_feature(0, (11, 12, 6, 5))
    assert describe_requests([column, patch]) == "column 7 of client 2 and the 6x5 patch at 11,12 of client 0"
    assert column.to_json() == {"client": 2, "kind": "feature", "feature": [7]}
    for request in (column, patch):
        assert ErasureRequest.from_json(request.to_json()) == request
    assert requests_id([column]) == requests_id([column, column]) != requests_id([patch])
    assert column.matches(poisoned_samples()).all()
    for wrong in ((), (1, 2), (-1,), (0, 0, 0, 3), (0.5,)):
        with pytest.raises(InputError, match=r"is no feature|is empty"):
            ErasureRequest.of_feature(0, wrong)


def test_a_sample_that_loses_a_feature_stays():
    samples = poisoned_samples()
    requests = [ErasureRequest.of_feature(3, 7), ErasureRequest.of_samples(3, [11])]
    assert target_mask(requests, 3, samples).all()
    assert withdrawn_mask(requests, 3, samples).nonzero()[:, 0].tolist() == [1]
    assert withdrawn_features(requests, 3, (9,)).nonzero()[:, 0].tolist() == [7]
    assert not withdrawn_features(requests, 0, (9,)).any(), "another client's"


def test_requests_in_words():
    requests = [ErasureRequest.of_class(0, 3), ErasureRequest.of_samples(1, [5, 9]), ErasureRequest.of_client(2)]
    assert describe_requests(requests) == "class 3 of client 0 and 2 samples of client 1 and everything of client 2"
