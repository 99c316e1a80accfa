"""Tasks and replies survive the wire unchanged; everything else is refused with one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from flower_worlds import World
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.audit.feature_sensitivity import MeasureSensitivity
from fedforget.audit.membership import AttackMembership
from fedforget.errors import ClientError, DivergedError, FedForgetError, InputError, RefusedError
from fedforget.federation.tasks import CountSamples, Reply, Task, Train, Withdraw
from fedforget.flower.messages import (
    TYPES,
    Description,
    check_reply,
    check_task,
    description_content,
    error_content,
    pack,
    query_content,
    read_description,
    read_query,
    read_reply,
    read_task,
    read_withdrawal,
    reply_content,
    task_content,
    unpack,
)
from fedforget.flower.values import decode, encode, known_classes, known_tasks
from fedforget.methods import METHODS
from fedforget.methods.fedaf.forgetting import TEACHER_KEY, Forget
from fedforget.methods.fedaf.settings import OVERWRITE
from fedforget.methods.fedaf.sketching import SKETCH_KEY
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 3)
TRAIN = Train(seed=0, threads=1, round=0)


def every_task() -> Iterator[type[Task]]:
    """Every task of the package that a client can do, registered or not."""
    todo: list[type[Task]] = [Task]
    while todo:
        for cls in todo.pop().__subclasses__():
            todo.append(cls)
            if cls.__module__.startswith("fedforget.") and cls.run is not Task.run:
                yield cls


def test_every_task_is_listed_by_its_method_or_by_the_audit():
    assert set(every_task()) == set(known_tasks()), "a new task needs its place in its method's row, or in audit/tasks"
    assert len(known_classes()) == len(set(known_classes().values()))
    assert len({cls.__name__ for cls in known_tasks()}) == len(known_tasks())
    presets = {type(preset) for method in METHODS.values() for preset in method.presets.values()}
    assert presets <= set(known_classes().values())


REQUESTS = st.one_of(
    st.builds(ErasureRequest.of_class, st.integers(0, 9), st.integers(0, 99)),
    st.builds(ErasureRequest.of_client, st.integers(0, 9)),
    st.builds(ErasureRequest.of_feature, st.integers(0, 9), st.integers(0, 99)),
    st.builds(ErasureRequest.of_feature, st.integers(0, 9), st.tuples(*[st.integers(1, 99)] * 4)),
    st.builds(ErasureRequest.of_samples, st.integers(0, 9), st.lists(st.integers(0, 2**31), min_size=1, max_size=5)),
)
FLOATS = st.floats(0, allow_nan=False, allow_infinity=False)


def values_of(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Anything that the annotation allows."""
    origin, options = get_origin(hint), get_args(hint)
    if name == "threads":
        return st.integers(1, 64)
    if hint is ErasureRequest:
        return REQUESTS
    if hint in (int, float, bool, str):
        return {int: st.integers(0, 2**60), float: FLOATS, bool: st.booleans(), str: st.text()}[hint]
    if origin is Literal:
        return st.sampled_from(options)
    if origin is tuple:
        return st.lists(values_of(options[0]), max_size=4).map(tuple)
    if hint is type(None):
        return st.none()
    if options:
        return st.one_of([values_of(option) for option in options])
    if issubclass(hint, Task):
        return tasks_of(hint)
    return st.sampled_from([p for method in METHODS.values() for p in method.presets.values() if type(p) is hint])


def tasks_of(cls: type[Task]) -> st.SearchStrategy[Task]:
    hints = get_type_hints(cls)
    values = {item.name: values_of(hints[item.name], item.name) for item in fields(cls)}
    return st.builds(cls, **values)


@pytest.mark.parametrize("cls", known_tasks(), ids=lambda cls: cls.__name__)
def test_every_task_comes_back_as_it_went(cls: type[Task]):
    @settings(max_examples=40, deadline=None)
    @given(tasks_of(cls), st.integers(0, 99))
    def there_and_back(task: Task, client: int) -> None:
        content = task_content(task, client, {"w": torch.ones(2)})
        again, addressee, state = read_task(content)
        assert (again, addressee, list(state)) == (task, client, ["w"])
        assert type(again) is type(task)
        assert repr(again) == repr(task), "also 1 and 1.0, which are equal"

    there_and_back()


@pytest.mark.parametrize("cls", known_tasks(), ids=lambda cls: cls.__name__)
def test_a_field_too_many_too_few_or_of_the_wrong_type_is_refused(cls: type[Task]):
    task = _some(cls)
    tree = encode(task, {})
    assert decode(tree, {}) == task
    for name in tree["fields"]:
        without = {k: v for k, v in tree["fields"].items() if k != name}
        with pytest.raises(RefusedError, match=f"^'{cls.__name__}' lacks the field '{name}';"):
            decode({**tree, "fields": without}, {})
        with pytest.raises(RefusedError, match="Sketch"):
            decode({**tree, "fields": {**tree["fields"], name: {"type": "Sketch", "fields": {}}}}, {})
        wrong = 0.5 if isinstance(tree["fields"][name], str | list) else "x"
        with pytest.raises(RefusedError, match=f"^Field '{name}' of '{cls.__name__}' is "):
            decode({**tree, "fields": {**tree["fields"], name: wrong}}, {})
    with pytest.raises(RefusedError, match=f"^'{cls.__name__}' does not know the field 'colour';"):
        decode({**tree, "fields": {**tree["fields"], "colour": 1}}, {})


def _some(cls: type[Task]) -> Task:
    hints = get_type_hints(cls)
    given: dict[str, Any] = {}
    for item in fields(cls):
        if item.default is MISSING:
            hint = hints[item.name]
            plain = {int: 1, float: 1.0, str: "word"}.get(hint)
            if plain is None and get_origin(hint) is tuple:
                plain = (1, 2) if get_args(hint)[0] is int else (CLASS,)
            if plain is None and get_origin(hint) is Literal:
                plain = get_args(hint)[0]
            if plain is None and issubclass(hint, Task):
                plain = TRAIN
            if plain is None:
                plain = next(p for m in METHODS.values() for p in m.presets.values() if type(p) is hint)
            given[item.name] = plain
    return cls(**given)


BAD_TREES: dict[str, tuple[Any, str]] = {
    "an unknown task": ({"type": "Steal", "fields": {}}, "'Steal' is unknown here; both sides must run the same"),
    "a class of Python": ({"type": "object", "fields": {}}, "'object' is unknown here"),
    "no task": ({"type": "Sketch", "fields": {"rows": {"tensor": "w"}, "count": 1}}, "A value is in no known form"),
    "a request": ({"request": {"client": 0, "kind": "client"}}, "'ErasureRequest' is no task."),
    "another form": ({"pickle": "gASV"}, "A value is in no known form: "),
}


@pytest.mark.parametrize("kind", BAD_TREES)
def test_what_is_no_task_is_refused(kind: str):
    tree, sentence = BAD_TREES[kind]
    text = json.dumps({"version": 2, "client": 0, "task": tree, "tensors": []})
    content = RecordDict({"fedforget": ConfigRecord({"json": text}), "tensors": ArrayRecord()})
    with pytest.raises(RefusedError) as refusal:
        read_task(content)
    assert str(refusal.value).startswith(sentence)


@pytest.mark.parametrize(
    ("field", "value"),
    [("lr", "NaN"), ("lr", "Infinity"), ("lr", "1e999"), ("lr", "-0.1"), ("threads", "0"), ("threads", "100000"),
     ("round", "true"), ("seed", "1.5"), ("exclude", "[1]"),
     ("exclude", '[{"request": {"client": "0", "kind": "client"}}]'),
     ("exclude", '[{"request": {"client": 0, "kind": "planet"}}]'), ("exclude", '[{"request": {"client": 0}}]'),
     ("exclude", '[{"request": {"client": 0, "kind": "samples", "sample_ids": ["x"]}}]'),
     ("exclude", "[" * 3000 + "]" * 3000)],
)  # fmt: skip
def test_a_bad_value_is_refused(field: str, value: str):
    text = json.dumps({"version": 2, "client": 0, "task": encode(TRAIN, {}), "tensors": []})
    name = json.dumps(field)
    start = text.index(f"{name}: ") + len(name) + 2
    end = min(text.index(mark, start) for mark in (", ", "}"))
    content = RecordDict(
        {"fedforget": ConfigRecord({"json": text[:start] + value + text[end:]}), "tensors": ArrayRecord()}
    )
    with pytest.raises(RefusedError) as refusal:
        read_task(content)
    assert str(refusal.value).endswith(".")


def test_settings_that_forbid_themselves_are_refused():
    tree = encode(Forget(seed=0, threads=1, requests=(CLASS,), settings=OVERWRITE.opened()), {})
    tree["fields"]["settings"]["fields"]["batch_size"] = 0
    with pytest.raises(
        RefusedError, match=r"^FedAF setting 'batch_size' is 0, but it must be a finite number above 0\.$"
    ):
        decode(tree, {})


def test_content_of_others_is_refused():
    for content in (
        RecordDict(),
        RecordDict({"fedforget": ConfigRecord({"json": 3})}),
        RecordDict({"x": ArrayRecord()}),
    ):
        with pytest.raises(RefusedError, match=r"^The message is not one of fedforget's\.$"):
            read_task(content)
    for text, sentence in (("{", "is no JSON."), ("[]", "is no JSON object."), ('{"version": 1}', "another version")):
        with pytest.raises(RefusedError, match=sentence):
            read_task(RecordDict({"fedforget": ConfigRecord({"json": text})}))
    text = json.dumps({"version": 2, "client": 0, "task": {}, "tensors": [], "more": 1})
    with pytest.raises(RefusedError, match="unknown entry 'more'"):
        read_task(RecordDict({"fedforget": ConfigRecord({"json": text})}))


# Tensors


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(TYPES.values())), st.lists(st.integers(0, 4), max_size=4), st.integers(0, 2**31))
def test_tensors_keep_every_bit(dtype: torch.dtype, shape: list[int], seed: int):
    size = math.prod(shape) * dtype.itemsize
    if dtype is torch.bool:
        raw = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    else:
        raw = torch.randint(0, 256, (size,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    again = unpack(RecordDict({"tensors": pack({"x": tensor})}), ["x"])["x"]
    assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(again.reshape(-1).view(torch.uint8), tensor.contiguous().reshape(-1).view(torch.uint8))


def test_a_state_keeps_its_order_and_its_counters():
    state: State = {
        "z": torch.randn(3, 2).T, "a": torch.tensor(7), "m": torch.randn(2, 2).bfloat16(), "empty": torch.zeros(0, 3),
    }  # fmt: skip
    _, _, again = read_task(task_content(TRAIN, 0, state))
    assert list(again) == list(state)
    assert digest(again) == digest(state)
    again["z"].zero_()
    assert float(state["z"].abs().sum()) > 0, "no memory is shared"


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (Array("float32", (2,), "fedforget.raw", b"1234"), "has 4 bytes, which do not make float32[2]."),
        (Array("float32", (-1,), "fedforget.raw", b""), "has 0 bytes, which do not make float32[-1]."),
        (Array("object", (1,), "fedforget.raw", b"12345678"), "is of the unknown type 'object'"),
        (Array("float32", (1,), "numpy.ndarray", b"1234"), "is of the unknown type 'float32' (numpy.ndarray)."),
    ],
)
def test_a_tensor_that_lies_is_refused(array: Array, sentence: str):
    with pytest.raises(RefusedError) as refusal:
        unpack(RecordDict({"tensors": ArrayRecord({"w": array})}), ["w"])
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("names", [[], ["w", "w"], ["w", "v"], "w", [["w"]], None])
def test_a_list_of_other_tensors_is_refused(names: Any):
    with pytest.raises(RefusedError, match="does not hold the tensors that it lists"):
        unpack(RecordDict({"tensors": pack({"w": torch.ones(1)})}), names)


# What a client expects


def test_tensors_are_checked_against_the_clients_own_model(world: World):
    client = world.local().client(0)
    good = state_of(client.model)
    name = next(iter(good))
    check_task(TRAIN, 0, good, client)
    cases: list[tuple[State, str]] = [
        ({n: t for n, t in good.items() if n != name}, f"The model that came lacks '{name}'."),
        ({}, f"The model that came lacks '{name}'."),
        ({**good, "more": torch.ones(1)}, "Tensor 'more' does not belong to a Train."),
        ({**good, SKETCH_KEY: torch.ones(1, 1)}, f"Tensor '{SKETCH_KEY}' does not belong to a Train."),
        (
            {**good, name: good[name][:1]},
            f"Tensor '{name}' is float32[1, 1, 5, 5], but it must be float32[16, 1, 5, 5].",
        ),
        ({**good, name: good[name].double()}, f"Tensor '{name}' is float64[16, 1, 5, 5], but it must be float32"),
        ({**good, name: good[name] * math.nan}, f"Tensor '{name}' is not finite."),
    ]
    for state, sentence in cases:
        with pytest.raises(RefusedError) as refusal:
            check_task(TRAIN, 0, state, client)
        assert str(refusal.value).startswith(sentence)
    with pytest.raises(RefusedError, match="does not belong to a CountSamples"):
        check_task(CountSamples(seed=0, threads=1), 0, good, client)


def test_what_may_come_beside_the_model(world: World):
    client = world.local().client(0)
    good = state_of(client.model)
    weights = sum(p.numel() for p in client.model.parameters())
    task = Forget(seed=0, threads=1, requests=(CLASS,), settings=replace(OVERWRITE.opened(), sketch_dtype="bfloat16"))
    rows = torch.ones(3, weights).bfloat16()
    check_task(task, 0, {**good, SKETCH_KEY: rows, f"{SKETCH_KEY}.count": torch.tensor(9)}, client)
    check_task(task, 0, {**good, **{f"{TEACHER_KEY}{n}": t for n, t in good.items()}}, client)
    for name, tensor in (
        (SKETCH_KEY, rows.float()), (SKETCH_KEY, rows[:, 1:]), (SKETCH_KEY, rows[0]), (f"{SKETCH_KEY}.count", rows[0]),
        (f"{TEACHER_KEY}x", rows), ("sga.fisher", torch.ones(weights)),
    ):  # fmt: skip
        with pytest.raises(RefusedError, match=f"^Tensor '{name}' "):
            check_task(task, 0, {**good, name: tensor}, client)


@pytest.mark.parametrize("cls", [AttackMembership, MeasureSensitivity], ids=lambda cls: cls.__name__)
def test_an_audit_comes_with_a_whole_model_and_to_the_client_that_asks(world: World, cls: type[Task]):
    good, task = state_of(world.network()), _some(cls)
    check_task(task, 0, good, world.local().client(0))
    with pytest.raises(RefusedError, match=r"^The requests are other clients', but this node is client 1\.$"):
        check_task(task, 1, good, world.local().client(1))
    with pytest.raises(RefusedError, match=r"^The model that came lacks "):
        check_task(task, 0, {}, world.local().client(0))
    with pytest.raises(RefusedError, match=f"^Tensor 'more' does not belong to a {cls.__name__}"):
        check_task(task, 0, {**good, "more": torch.ones(1)}, world.local().client(0))


def test_a_request_for_another_node_is_refused(world: World):
    client = world.local().client(1)
    good = state_of(client.model)
    with pytest.raises(RefusedError, match=r"^The task is for client 0, but this node is client 1\.$"):
        check_task(TRAIN, 0, good, client)
    forget = Forget(seed=0, threads=1, requests=(CLASS,), settings=OVERWRITE.opened())
    with pytest.raises(RefusedError, match=r"^The requests are other clients', but this node is client 1\.$"):
        check_task(forget, 1, good, client)
    both = Withdraw(seed=0, threads=1, requests=(ErasureRequest.of_class(1, 3), CLASS))
    check_task(both, 1, {}, client)
    with pytest.raises(InputError, match=r"^Client 1 cannot withdraw class 3 of client 0; that is not its own\.$"):
        both.run({}, client)
    assert client.erased == ()


# Replies


def test_a_reply_comes_back_as_it_went():
    reply = Reply(
        3, {"b": torch.randn(2), "a": torch.tensor(5)}, {"samples": 60.0, "loss": 0.1 + 0.2},
        {"loss": [1.0, 0.5]}, 12.4, {"sketch": 0.25}, 77, ("It survived.",),
    )  # fmt: skip
    again = read_reply(reply_content(reply), 3)
    assert list(again.tensors) == ["b", "a"]
    assert digest(again.tensors) == digest(reply.tensors)
    assert replace(again, tensors={}) == replace(reply, tensors={})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"client": 2}, "It answers as client 2."),
        ({"numbers": {"samples": math.nan}}, "A number is NaN, which is not finite."),
        ({"curves": {"loss": [0.5, math.inf]}}, "A number is Infinity, which is not finite."),
        ({"numbers": {"ids": [1, 2]}}, "The reply holds [1, 2], which is no finite number."),
        ({"curves": {"loss": 3}}, "The reply's curves or notes are malformed."),
        ({"notes": [3]}, "The reply's curves or notes are malformed."),
        ({"stored_bytes": "x"}, "The message's entry 'stored_bytes' is missing or of the wrong type."),
        ({"samples": 3}, "The message has the unknown entry 'samples'."),
    ],
)
def test_a_bad_reply_is_refused(change: dict[str, Any], sentence: str):
    content = reply_content(Reply(1, numbers={"samples": 1.0}))
    values = {**json.loads(content["fedforget"]["json"]), **change}
    content["fedforget"]["json"] = json.dumps(values)
    with pytest.raises(RefusedError) as refusal:
        read_reply(content, 1)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("place", ['"samples": ', '"loss": [', '"sketch": ', '"gradient_evaluations": '])
def test_a_number_of_a_reply_beyond_all_numbers_is_refused(place: str):
    """JSON knows no infinity, but 1e999 reads as one."""
    reply = Reply(1, {}, {"samples": 7.0}, {"loss": [7.0]}, 7.0, {"sketch": 7.0})
    content = reply_content(reply)
    text = content["fedforget"]["json"]
    content["fedforget"]["json"] = text.replace(f"{place}7.0", f"{place}1e999")
    assert content["fedforget"]["json"] != text
    with pytest.raises(RefusedError, match=r"^The reply holds inf, which is no finite number\.$"):
        read_reply(content, 1)


def test_a_reply_is_what_the_task_declares(world: World):
    whole = state_of(world.network())
    name = next(iter(whole))
    check_reply(TRAIN, Reply(1, whole, {"samples": 3.0}), world.network())
    check_reply(TRAIN, Reply(1, {}, {"samples": 0.0}), world.network())
    for task, reply, sentence in (
        (
            CountSamples(seed=0, threads=1),
            Reply(1, {"more": torch.ones(1)}),
            "sent tensors, but a CountSamples returns",
        ),
        (TRAIN, Reply(1, whole), "sent a model without the number of its samples."),
        (TRAIN, Reply(1, {name: whole[name]}, {"samples": 3.0}), "sent a model whose '"),
        (TRAIN, Reply(1, {**whole, "more": torch.ones(1)}, {"samples": 3.0}), "sent a model whose 'more' is not"),
    ):
        with pytest.raises(ClientError, match=f"^Client 1 {sentence}"):
            check_reply(task, reply, world.network())


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (InputError("Class 10 does not exist."), InputError("Class 10 does not exist.")),
        (
            DivergedError("Training in round 0 at client 2", "lr."),
            DivergedError("Training in round 0 at client 2", "lr."),
        ),
        (DivergedError("The forgetting step", "x."), DivergedError("The forgetting step at client 2", "x.")),
        (RefusedError("'Steal' is unknown here."), ClientError(2, "refused: 'Steal' is unknown here.")),
    ],
)
def test_an_error_is_raised_again_as_what_it_was(error: FedForgetError, raised: FedForgetError):
    with pytest.raises(type(raised)) as again:
        read_reply(error_content(2, error), 2)
    assert str(again.value) == str(raised)


# Questions along with who a node is, and what comes before a task


def test_questions_and_answers_come_back_as_they_went():
    questions = [(CLASS,), (CLASS, ErasureRequest.of_samples(1, [4, 2])), ()]
    assert read_query(query_content(questions)) == tuple(questions)
    assert read_query(query_content([])) == ()
    answers = ((3, 4), None, InputError("No."), DivergedError("Here", "so."))
    said = read_description(description_content(Description(2, "site", 9, ("'w' of float32[2]",), "as it is", answers)))
    assert said.answers[:2] == answers[:2]
    assert [type(answer) for answer in said.answers[2:]] == [InputError, DivergedError]
    assert str(said.answers[2]) == "No."


@pytest.mark.parametrize("answers", [[[1]], [[1, -1]], [[1.5, 2]], ["x"], [{"kind": "input"}], None])
def test_malformed_answers_are_refused(answers: Any):
    values = {"client": 2, "name": "a", "samples": 9, "model": [], "images": "", "answers": answers}
    text = json.dumps({"version": 2, **values})
    content = RecordDict({"fedforget": ConfigRecord({"json": text})})
    if answers == [{"kind": "input"}]:
        assert "an error that cannot be read" in str(read_description(content).answers[0])
        return
    with pytest.raises(RefusedError, match=r"malformed|wrong type"):
        read_description(content)


def test_only_a_withdrawal_comes_before_a_task():
    withdrawal = Withdraw(seed=0, threads=1, requests=(CLASS,))
    content = task_content(TRAIN, 0, {}, withdrawal=withdrawal)
    assert read_withdrawal(content) == withdrawal
    assert read_task(content)[0] == TRAIN
    assert read_withdrawal(task_content(TRAIN, 0, {})) is None
    with pytest.raises(RefusedError, match=r"^'Train' cannot come before a task\.$"):
        read_withdrawal(task_content(TRAIN, 0, {}, withdrawal=TRAIN))  # type: ignore[arg-type]
