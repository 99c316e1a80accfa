"""Features: which are there, and what blanking and shuffling leave alone."""

from __future__ import annotations

import pytest
import torch

from fedforget.audit.feature_sensitivity import shuffled
from fedforget.data.samples import Normalisation
from fedforget.errors import InputError
from fedforget.requests import check_feature, covers, feature_mask, overlap, parse_feature


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a", "'a' is no feature"),
        ("", "'' is no feature"),
        ("1,2", "'1,2' is no feature"),
        ("-1", "'-1' is no feature"),
        ("1,1,0,2", "The patch 1,1,0,2 is empty"),
    ],
)
def test_what_is_no_feature(text: str, sentence: str):
    with pytest.raises(InputError, match=sentence):
        parse_feature(text)


@pytest.mark.parametrize(
    ("feature", "shape", "sentence"),
    [
        ((30,), (30,), "Column 30 does not exist; the table has columns 0 to 29."),
        ((3,), (1, 8, 8), r"have the shape \(1, 8, 8\) and no columns"),
        ((1, 1, 2, 2), (30,), "are no images; name a column"),
        ((6, 0, 3, 3), (1, 8, 8), "The patch 6,0,3,3 reaches beyond the image of 8x8 pixels."),
        ((0, 6, 3, 3), (1, 8, 8), "reaches beyond"),
    ],
)
def test_what_the_samples_do_not_have(feature: tuple[int, ...], shape: tuple[int, ...], sentence: str):
    with pytest.raises(InputError, match=sentence):
        check_feature(feature, shape)


def test_the_last_column_and_a_patch_in_the_corner_are_there():
    check_feature((29,), (30,))
    check_feature((5, 5, 3, 3), (3, 8, 8))
    assert int(feature_mask((5, 5, 3, 3), (3, 8, 8)).sum()) == 3 * 9


def test_blanked_is_the_value_that_becomes_zero_and_the_rest_is_untouched():
    images = torch.randint(0, 256, (4, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    normalisation = Normalisation((0.2, 0.4, 0.6), (0.5, 0.5, 0.5))
    mask = feature_mask((1, 2, 3, 2), (3, 6, 6))
    without = normalisation.blanked(images, mask)
    assert without.dtype == torch.uint8
    assert normalisation(without)[:, mask].abs().max() < 1 / 255, "to the nearest grey"
    assert torch.equal(without[:, ~mask], images[:, ~mask])
    table = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    column = Normalisation().blanked(table, feature_mask((3,), (7,)))
    assert column[:, 3].tolist() == [0.0] * 5
    assert torch.equal(column[:, [0, 1, 2, 4, 5, 6]], table[:, [0, 1, 2, 4, 5, 6]])


def test_shuffled_keeps_the_values_of_a_sample_together():
    table = torch.arange(12.0).reshape(6, 2)
    both = torch.ones(2, dtype=torch.bool)
    whole = shuffled(table, both, torch.Generator().manual_seed(1))
    assert sorted(whole.tolist()) == table.tolist()
    assert whole.tolist() != table.tolist()
    first = shuffled(table, feature_mask((0,), (2,)), torch.Generator().manual_seed(1))
    assert torch.equal(first[:, 0], whole[:, 0])
    assert torch.equal(first[:, 1], table[:, 1])


def places(patch: tuple[int, ...]) -> set[tuple[int, int]]:
    top, left, height, width = patch
    return {(row, column) for row in range(top, top + height) for column in range(left, left + width)}


def test_what_lies_within_others_is_what_a_count_of_pixels_says():
    draw = torch.Generator().manual_seed(0)
    numbers = torch.cat(
        (torch.randint(0, 4, (600, 4, 2), generator=draw), torch.randint(1, 5, (600, 4, 2), generator=draw)), dim=2
    )
    seen = set()
    for patch, *others in (map(tuple, four) for four in numbers.tolist()):
        joint = set[tuple[int, int]]().union(*map(places, others))
        assert covers(others, patch) == (places(patch) <= joint)
        assert [overlap(patch, other) for other in others] == [bool(places(patch) & places(other)) for other in others]
        seen |= {("covered", covers(others, patch)), ("overlaps", overlap(patch, others[0]))}
    assert len(seen) == 4, "both happen"
    assert not covers([], (0, 0, 1, 1))
    assert not covers([(3,)], (0, 0, 1, 1))
    assert covers([(3,), (4,)], (4,))
