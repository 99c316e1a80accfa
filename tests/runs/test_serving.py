"""What is left to do for requests that come after others: nothing is trained here."""

import pytest
from worker_worlds import CONFIG

from fedforget.data import load_dataset
from fedforget.data.partition import partition
from fedforget.federation.local import LocalFederation
from fedforget.models import build_model
from fedforget.requests import ErasureRequest
from fedforget.runs.job import Job
from fedforget.runs.serving import split

CLASS, EVERYTHING = ErasureRequest.of_class(0, 3), ErasureRequest.of_client(0)
PATCH, OTHER = ErasureRequest.of_feature(0, [2, 2, 4, 4]), ErasureRequest.of_feature(1, [2, 2, 4, 4])
TOP, BOTTOM = ErasureRequest.of_feature(0, [2, 2, 2, 4]), ErasureRequest.of_feature(0, [4, 2, 2, 4])
INSIDE, BESIDE = ErasureRequest.of_feature(0, [3, 3, 2, 2]), ErasureRequest.of_feature(0, [0, 0, 1, 1])


@pytest.fixture(scope="module")
def federation() -> LocalFederation:
    data = load_dataset("digits").first(200, 20)
    parts = partition("iid", data.train.labels, 2, 0)
    return LocalFederation(data, parts, build_model("mlp", data.shape, 10, 0))


@pytest.mark.parametrize(
    ("asked", "served", "fresh", "known", "gone"),
    [
        ([CLASS], [], [CLASS], [], []),
        ([CLASS], [CLASS], [], [CLASS], []),
        ([CLASS], [ErasureRequest.of_class(0, 5)], [CLASS], [], []),
        ([CLASS], [ErasureRequest.of_class(1, 3)], [CLASS], [], []),
        ([CLASS], [EVERYTHING], [], [EVERYTHING], []),
        ([CLASS], [CLASS, EVERYTHING], [], [CLASS, EVERYTHING], []),
        ([EVERYTHING], [CLASS], [EVERYTHING], [], []),
        ([PATCH], [PATCH], [], [PATCH], []),
        ([PATCH], [OTHER], [PATCH], [], []),
        ([INSIDE], [TOP, BESIDE, BOTTOM], [], [TOP, BOTTOM], []),
        ([PATCH], [TOP], [PATCH], [], []),
        ([PATCH], [EVERYTHING], [], [EVERYTHING], []),
        ([PATCH, OTHER], [EVERYTHING], [OTHER], [], [PATCH]),
        ([PATCH, OTHER], [EVERYTHING, OTHER], [], [OTHER], [PATCH]),
        ([CLASS, ErasureRequest.of_class(1, 3)], [EVERYTHING], [ErasureRequest.of_class(1, 3)], [EVERYTHING], []),
    ],
)
def test_what_is_left_what_was_forgotten_and_what_cannot_be_measured(
    federation: LocalFederation, asked: list, served: list, fresh: list, known: list, gone: list
):
    job = Job(CONFIG, 1, "model.safetensors", "0" * 64, tuple(asked), tuple(served), "overwrite", "default")
    assert split(federation, job) == (tuple(fresh), tuple(known), tuple(gone))
