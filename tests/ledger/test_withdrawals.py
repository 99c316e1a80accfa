"""A certificate that holds no more is on a signed list, with the reason; and who was given no list says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger_commands import Command
from ledger_worlds import World, change

from fedforget.errors import InputError
from fedforget.ledger.certificate import read_keys, verify_certificate
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.statements import WITHDRAWALS, Statement, open_statement, read_statement, sign
from fedforget.ledger.withdrawals import check_standing


def certificate_of(world: World, id: str) -> bytes:
    found = world.ledger.versions.certificate_of(id)
    assert found is not None
    return found.content.encode()


def listed(world: World) -> Statement:
    keys = read_keys([world.ledger.keys.folder])
    return open_statement(world.ledger.withdrawals.signed().encode(), keys, WITHDRAWALS, "the list")


def test_a_rollback_and_a_finding_are_on_the_list(world: World):
    kept, found, undone = (world.served().id for _ in range(3))
    certificates = {id: certificate_of(world, id) for id in (kept, found, undone)}
    assert listed(world).predicate["withdrawn"] == []
    world.ledger.versions.roll_back("digits", 3, "It answers nonsense.", actor="oscar")
    world.ledger.withdrawals.withdraw(found, "The trigger still works.", actor="oscar")
    told = listed(world)
    head = world.ledger.trail.head()
    assert told.digests == {f"{head.ledger}/event/{head.number}": head.hash}
    assert [(row["request"], row["reason"]) for row in told.predicate["withdrawn"]] == [
        (undone, "Version 4 was rolled back to version 3: It answers nonsense."),
        (found, "The trigger still works."),
    ]
    keys = read_keys([world.ledger.keys.folder])
    for id, data in certificates.items():
        record = verify_certificate(data, keys)
        if id == kept:
            assert "had not been withdrawn on" in check_standing(data, record, told, "It")
            continue
        with pytest.raises(InputError, match="It is genuine, but was withdrawn on 2026-01-31"):
            check_standing(data, record, told, "It")
    request = world.ledger.requests.get(found)
    assert (request.state, request.version) == ("failed", None)
    assert world.ledger.trail.check().problems == ()


def test_what_is_served_anew_has_a_certificate_that_holds(world: World):
    request = world.served()
    first = certificate_of(world, request.id)
    world.ledger.withdrawals.withdraw(request.id, "A later look found it.", actor="oscar")
    with pytest.raises(ConflictError, match="is failed; only a done one"):
        world.ledger.withdrawals.withdraw(request.id, "Again.", actor="oscar")
    world.ledger.decisions.again(request.id, actor="oscar")
    world.serve(says="exact")
    second = certificate_of(world, request.id)
    keys, told = read_keys([world.ledger.keys.folder]), listed(world)
    assert check_standing(second, verify_certificate(second, keys), told, "It")
    with pytest.raises(InputError, match="was withdrawn"):
        check_standing(first, verify_certificate(first, keys), told, "It")
    old, new = world.ledger.withdrawals.find(first), world.ledger.withdrawals.find(second)
    assert old is not None
    assert new is not None
    assert world.ledger.withdrawals.reason(old) == "A later look found it."
    assert world.ledger.withdrawals.reason(new) is None
    assert world.ledger.trail.check().problems == ()


def test_a_list_that_cannot_tell_is_refused(world: World):
    before = listed(world)
    data = certificate_of(world, world.served().id)
    keys = read_keys([world.ledger.keys.folder])
    record = verify_certificate(data, keys)
    with pytest.raises(InputError, match="is older than"):
        check_standing(data, record, before, "It")
    with world.ledger.database.reading() as session:
        private = world.ledger.keys.signing(session)
    now = read_statement(world.ledger.withdrawals.signed().encode(), "it")[0]
    other = sign(private, WITHDRAWALS, now.digests, {**now.predicate, "ledger": "0" * 32})
    with pytest.raises(InputError, match="of another ledger"):
        check_standing(data, record, open_statement(other.encode(), keys, WITHDRAWALS, "it"), "It")


def test_a_withdrawal_that_is_taken_back_in_secret_is_noticed(world: World):
    request = world.served()
    world.ledger.withdrawals.withdraw(request.id, "A later look found it.", actor="oscar")
    change(world.ledger, "UPDATE certificates SET withdrawn = NULL")
    (problem,) = world.ledger.trail.check().problems
    assert problem.endswith("is withdrawn or not, but its events do not say so.")


def test_verify_says_whether_it_could_look(fedforget: Command, tmp_path: Path):
    fedforget.world.clock.now = fedforget.world.clock.now.replace(year=2026)
    request, file, told = fedforget.world.served(), tmp_path / "certificate.json", tmp_path / "withdrawals.json"
    file.write_bytes(certificate_of(fedforget.world, request.id))
    assert "Whether it was withdrawn since could not be looked up" in fedforget("verify", file)
    assert fedforget.json("verify", file)["withdrawn"] is None
    fedforget("ledger", "withdrawals", "--out", told)
    assert "It had not been withdrawn on 20" in fedforget("verify", file, "--withdrawals", told)
    assert fedforget.json("verify", file, "--withdrawals", told)["withdrawn"] is False
    assert "is failed" in fedforget("request", "withdraw", request.id, "--reason", "It still knows them.")
    assert "Its certificate was withdrawn: It still knows them." in fedforget("request", "show", request.id)
    fedforget("ledger", "withdrawals", "--out", told)
    assert "was withdrawn on 20" in fedforget.refused("verify", file, "--withdrawals", told)
    told.write_bytes(file.read_bytes())
    assert "but a list of withdrawals has" in fedforget.refused("verify", file, "--withdrawals", told)
