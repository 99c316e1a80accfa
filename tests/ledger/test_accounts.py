"""Who may come in: the right secret, in time, once where it says once; and every refusal is written down."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from ledger_worlds import Ticking, quick_passwords
from sqlalchemy import select, text

from fedforget.errors import InputError
from fedforget.ledger import accounts
from fedforget.ledger.accounts import Accounts
from fedforget.ledger.book import Ledger
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.schema import Link, SignIn
from fedforget.ledger.states import Role

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_passwords(monkeypatch)


@pytest.fixture
def ann(ledger: Ledger) -> Ledger:
    """A ledger with an admin, ann."""
    ledger.accounts.add("ann", "admin", password=PASSWORD)
    return ledger


def denials(ledger: Ledger) -> list[tuple[str, str]]:
    return [(event.actor, json.loads(event.body)["why"]) for event in ledger.trail.events(kinds=["denied"], after=0)]


def test_by_password(ann: Ledger):
    person = ann.accounts.authenticate(" Ann ", PASSWORD)
    assert person is not None
    assert (person.name, person.role) == ("ann", Role.ADMIN)
    assert denials(ann) == []


@pytest.mark.parametrize(
    ("name", "password", "who", "why"),
    [
        ("ann", "wrong horse battery", "ann", "wrong password"),
        ("ann", "", "ann", "wrong password"),
        ("ann", PASSWORD + "\0", "ann", "wrong password"),
        ("ann", "\ud800", "ann", "wrong password"),
        ("ann", "x" * 10**6, "ann", "wrong password"),
        ("nobody", PASSWORD, "system", "no such account"),
        (PASSWORD, "ann", "system", "no such account"),
        ("a\0nn", PASSWORD, "system", "no such account"),
        ("", "", "system", "no such account"),
    ],
)
def test_not_by_another(ann: Ledger, name: str, password: str, who: str, why: str):
    assert ann.accounts.authenticate(name, password) is None
    assert denials(ann) == [(who, why)]
    assert all(PASSWORD not in event.body + event.actor for event in ann.trail.events()), "not even in the wrong field"


@pytest.mark.parametrize("name", ["ann", "bob", "nobody"])
def test_a_wrong_password_takes_as_long_for_any_name(ann: Ledger, name: str, monkeypatch: pytest.MonkeyPatch):
    """One slow comparison, with a real hash, whether there is such an account or not, and a password or not."""
    ann.accounts.add("bob", "auditor")
    hasher, asked = accounts.HASHER, []

    class Counted:
        hash = staticmethod(hasher.hash)

        @staticmethod
        def verify(stored: str, password: bytes) -> bool:
            asked.append(stored)
            return bool(hasher.verify(stored, password))

    monkeypatch.setattr(accounts, "HASHER", Counted)
    assert ann.accounts.authenticate(name, "wrong horse battery") is None
    assert [stored.partition("$v=")[0] for stored in asked] == ["$argon2id"]


def test_an_account_without_a_password_has_none_to_guess(ann: Ledger):
    ann.accounts.add("bob", "auditor")
    assert ann.accounts.authenticate("bob", "") is None
    assert ann.accounts.authenticate("bob", "None") is None


def test_disabled(ann: Ledger):
    ann.accounts.add("bob", "officer", password=PASSWORD)
    session, link = ann.accounts.open_session("bob", by="password"), ann.accounts.make_link("bob")
    token, _ = ann.accounts.make_token("bob", "cron", actor="ann")
    ann.accounts.change("bob", disabled=True, actor="ann")
    assert (ann.accounts.session(session), ann.accounts.token(token), ann.accounts.redeem_link(link)) == (
        None,
        None,
        None,
    )
    assert ann.accounts.authenticate("bob", PASSWORD) is None
    assert ("bob", "disabled") in denials(ann)
    with pytest.raises(MissingError, match="no such account"):
        ann.accounts.open_session("bob", by="link")
    ann.accounts.change("bob", disabled=False, actor="ann")
    assert ann.accounts.authenticate("bob", PASSWORD) is not None
    assert ann.accounts.session(session) is None, "an old session does not come back"


def test_only_hashes_are_kept(ann: Ledger):
    secrets = [PASSWORD, ann.accounts.open_session("ann", by="password"), ann.accounts.make_link("ann")]
    secrets.append(ann.accounts.make_token("ann", "cron", actor="ann")[0])
    with ann.database.reading() as session:
        tables = [session.execute(text(f"SELECT * FROM {name}")).all() for name in
                  ("accounts", "sessions", "links", "tokens", "events")]  # fmt: skip
    for secret in secrets:
        assert secret not in repr(tables)
    assert "$argon2id$" in repr(tables)
    assert len(set(secrets)) == 4


def test_a_session_ends(ann: Ledger, clock: Ticking):
    secret = ann.accounts.open_session("ann", by="password", lasting=timedelta(hours=1))
    person = ann.accounts.session(secret)
    assert person is not None
    assert person.name == "ann"
    clock.go_on(minutes=59)
    assert ann.accounts.session(secret) is not None
    clock.go_on(minutes=1)
    assert ann.accounts.session(secret) is None
    again = ann.accounts.open_session("ann", by="password")
    ann.accounts.close_session(again)
    ann.accounts.close_session("nothing")
    assert ann.accounts.session(again) is None
    assert [event.kind for event in ann.trail.events(limit=3)] == ["signed out", "signed in", "signed in"]


@pytest.mark.parametrize("secret", ["", "x", "\0", "\ud800", "' OR 1=1"])
def test_no_such_secret(ann: Ledger, secret: str):
    assert ann.accounts.session(secret) is None
    assert ann.accounts.token(secret) is None
    assert ann.accounts.redeem_link(secret) is None
    assert denials(ann) == [("system", "no such link")]


def test_a_session_is_one_look_and_no_slow_hash(ann: Ledger, monkeypatch: pytest.MonkeyPatch):
    secret, (token, _) = (
        ann.accounts.open_session("ann", by="password"),
        ann.accounts.make_token("ann", "cron", actor="ann"),
    )
    before = ann.trail.head()

    monkeypatch.setattr(accounts, "HASHER", None)  # argon2 is not asked
    assert ann.accounts.session(secret) is not None
    assert ann.accounts.token(token) is not None
    assert ann.trail.head() == before, "and nothing was written"


def test_a_change_of_role_or_password_ends_sessions(ann: Ledger):
    ann.accounts.add("bob", "officer", password=PASSWORD)
    for change in ({"role": "auditor"}, {"password": "another horse battery"}):
        secret = ann.accounts.open_session("bob", by="password")
        assert ann.accounts.change("bob", actor="ann", **change).name == "bob"  # type: ignore[arg-type]
        assert ann.accounts.session(secret) is None
    assert ann.accounts.get("bob").role == "auditor"
    assert ann.accounts.authenticate("bob", PASSWORD) is None
    assert ann.accounts.change("bob", actor="ann").role == "auditor", "no change"


def test_the_last_admin_stays(ann: Ledger):
    for change in ({"role": "officer"}, {"disabled": True}):
        with pytest.raises(ConflictError, match="last admin"):
            ann.accounts.change("ann", actor="ann", **change)  # type: ignore[arg-type]
        with pytest.raises(ConflictError, match="last admin"):
            ann.accounts.change("ann", actor="somebody else", **change)  # type: ignore[arg-type]
    assert ann.accounts.get("ann").role == "admin"
    assert ann.accounts.get("ann").disabled is None
    ann.accounts.add("eve", "admin")
    ann.accounts.change("ann", role="officer", actor="ann")


def test_a_link_works_once_and_in_time(ann: Ledger, clock: Ticking):
    link = ann.accounts.make_link("ann")
    person = ann.accounts.redeem_link(link)
    assert person is not None
    assert person.role == Role.ADMIN
    assert ann.accounts.redeem_link(link) is None
    late = ann.accounts.make_link("ann")
    clock.go_on(hours=1)
    assert ann.accounts.redeem_link(late) is None
    assert denials(ann) == [("ann", "used before"), ("ann", "expired")]


def test_a_new_link_ends_the_older_ones(ann: Ledger):
    ann.accounts.add("bob", "officer")
    old, of_bob, new = ann.accounts.make_link("ann"), ann.accounts.make_link("bob"), ann.accounts.make_link("ann")
    assert ann.accounts.redeem_link(old) is None
    assert denials(ann) == [("ann", "expired")]
    assert ann.accounts.redeem_link(new) is not None
    assert ann.accounts.redeem_link(of_bob) is not None, "another account's link lives"


def test_links_made_at_once_leave_one(ann: Ledger):
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: ann.accounts.make_link("ann"), range(12)))
    with ann.database.reading() as session:
        alive = session.scalars(select(Link).where(Link.expires > ann.clock())).all()
    assert len(alive) == 1


def test_a_used_link_ends_those_made_before_this_was_so(ann: Ledger, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as before:
        before.setattr(Accounts, "_end_links", lambda *_: None)
        old, new = ann.accounts.make_link("ann"), ann.accounts.make_link("ann")
    assert ann.accounts.redeem_link(new) is not None
    assert ann.accounts.redeem_link(old) is None


def test_a_new_password_ends_all_links(ann: Ledger):
    link = ann.accounts.make_link("ann")
    ann.accounts.change("ann", password="another horse battery", actor="ann")
    assert ann.accounts.redeem_link(link) is None
    assert denials(ann) == [("ann", "expired")]
    link = ann.accounts.make_link("ann")
    ann.accounts.add("eve", "admin")
    ann.accounts.change("ann", role="officer", actor="eve")
    assert ann.accounts.redeem_link(link) is not None, "another role alone ends no link: nothing secret changed"


def test_a_link_works_once_also_for_many_at_once(ann: Ledger):
    link = ann.accounts.make_link("ann")
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(ann.accounts.redeem_link, [link] * 12))
    assert sum(person is not None for person in found) == 1


def test_tokens(ann: Ledger, clock: Ticking):
    secret, token = ann.accounts.make_token("ann", "cron job", actor="ann", lasting=timedelta(days=1))
    forever, _ = ann.accounts.make_token("ann", "other", actor="ann", lasting=None)
    assert secret.startswith("ff_")
    assert ann.accounts.token(secret) is not None
    clock.go_on(days=1)
    assert ann.accounts.token(secret) is None
    assert ann.accounts.token(forever) is not None
    assert [row.label for row in ann.accounts.tokens("ann")] == ["cron job", "other"]
    assert len(ann.accounts.tokens()) == 2
    (other,) = [row for row in ann.accounts.tokens() if row.id != token.id]
    ann.accounts.revoke_token(other.id, actor="ann")
    assert ann.accounts.token(forever) is None
    with pytest.raises(MissingError, match="no such token"):
        ann.accounts.revoke_token(other.id, actor="ann")
    with pytest.raises(MissingError, match="no such account"):
        ann.accounts.make_token("nobody", "x", actor="ann")
    with pytest.raises(InputError, match="label"):
        ann.accounts.make_token("ann", "\n", actor="ann")


def test_who_a_provider_says_they_are(ann: Ledger):
    ann.accounts.add("bob", "officer", identity="https://login.example 42")
    found = ann.accounts.of_identity("https://login.example 42")
    assert found is not None
    assert found.name == "bob"
    assert ann.accounts.of_identity("https://login.example 43") is None
    assert ann.accounts.of_identity("\0") is None
    ann.accounts.change("bob", disabled=True, actor="ann")
    assert ann.accounts.of_identity("https://login.example 42") is None
    with pytest.raises(ConflictError, match="already"):
        ann.accounts.add("eve", "officer", identity="https://login.example 42")


@pytest.mark.parametrize("name", ["", " ", "a b", "a\0b", "x" * 65, "system", "worker", "worker-1", "-a", "ü"])
def test_no_name_for_an_account(ann: Ledger, name: str):
    with pytest.raises(InputError, match=r"is no name for an account|stands for the program itself"):
        ann.accounts.add(name, "officer")


def test_accounts(ann: Ledger):
    assert ann.accounts.add(" Bob@Example.org ", "requester").name == "bob@example.org"
    assert [account.name for account in ann.accounts.all()] == ["ann", "bob@example.org"]
    with pytest.raises(ConflictError, match="already"):
        ann.accounts.add("ANN", "officer")
    with pytest.raises(InputError, match="role 'king' is unknown"):
        ann.accounts.add("carl", "king")
    for password in ("short", "x" * 201):
        with pytest.raises(InputError, match="10 to 200"):
            ann.accounts.add("carl", "officer", password=password)
    for name in ("nobody", "\0"):
        with pytest.raises(MissingError, match="no such account"):
            ann.accounts.get(name)
        with pytest.raises(MissingError, match="no such account"):
            ann.accounts.change(name, role="officer", actor="ann")
    assert "password" not in ann.accounts.all()[0].to_json()


TOO_SIMPLE = (
    "aaaaaaaaaa", "abababababab", "abcabcabcabc", "hunter2hunter2", "1234567890", "0987654321", "abcdefghijklm",
    "zyxwvutsrq", "qwertyuiop", "1q2w3e4r5t6y", "Password123!", "p@ssw0rd-2026", "iloveyou123", "111222333444",
    "FedForget2026", "forget-forget", "bob.miller-26", "BOB_MILLER!!!!", "letmein letmein", "welcome  admin",
)  # fmt: skip


@pytest.mark.parametrize("password", TOO_SIMPLE)
def test_a_password_that_is_guessed_first_is_refused(ann: Ledger, password: str):
    """Long enough, all of them; for a new account, and for one that is there."""
    with pytest.raises(InputError, match=r"among the first that would be guessed: .*; take four words"):
        ann.accounts.add("bob.miller@example.org", "officer", password=password)
    ann.accounts.add("bob.miller@example.org", "officer", password=PASSWORD)
    with pytest.raises(InputError, match="among the first"):
        ann.accounts.change("bob.miller@example.org", password=password, actor="ann")
    assert ann.accounts.authenticate("bob.miller@example.org", PASSWORD) is not None


@pytest.mark.parametrize(
    "password",
    ["correct horse battery", "kartoffelsalat", "tr0ub4dor&3x", "x7Gw!p2Qn#", "straßenbahnen",
     "密码密码是一个很长的秘密", "the secret test of summer", "area of the alfalfa", "1998 was a wet year"],
)  # fmt: skip
def test_other_passwords_need_no_kinds_of_characters(ann: Ledger, password: str):
    ann.accounts.change("ann", password=password, actor="ann")
    assert ann.accounts.authenticate("ann", password) is not None


def test_what_has_expired_is_thrown_away(ann: Ledger, clock: Ticking):
    ann.accounts.open_session("ann", by="password", lasting=timedelta(minutes=1))
    kept = ann.accounts.open_session("ann", by="password")
    ann.accounts.make_link("ann", lasting=timedelta(minutes=1))
    clock.go_on(minutes=2)
    ann.accounts.tidy_secrets()
    with ann.database.reading() as session:
        left = [*session.scalars(select(SignIn)), *session.scalars(select(Link))]
    assert [type(row) for row in left] == [SignIn]
    assert ann.accounts.session(kept) is not None
