"""Every page, by day and by night, wide and narrow, and printed: axe finds no violation. And the keyboard alone leads
from the sign-in to a certificate.

axe-core is no part of this repository: $FEDFORGET_AXE names its `axe.min.js`, or the test is skipped."""

from __future__ import annotations

import os
import re
import time
from datetime import timedelta
from pathlib import Path

import pytest
from browsers import WIDTHS, Browser
from console_server import running_console
from fastapi import FastAPI
from fastapi.routing import APIRoute
from ledger_worlds import Ticking, World, rung
from selenium.webdriver.common.keys import Keys

from fedforget.ledger.book import Ledger
from fedforget.ledger.clock import utc_now
from fedforget.ledger.states import Role
from fedforget.requests import ErasureRequest

AXE = os.environ.get("FEDFORGET_AXE", "")
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
"""What is folded counts too."""
LOOKS = [*((size, scheme, "") for size in WIDTHS for scheme in ("light", "dark")), ("desktop", "light", "print")]
OUTSIDE = ("/sign-in", "/link/no-such-link", "/glossary")
INSIDE = (
    "/", "/?view=new", "/?view=all&text=x&since=2026-01-01", "/requests/new", "/federations", "/federations/digits",
    "/federations/digits/rollback?to=1", "/trail", "/verify", "/register", "/account", "/accounts", "/nothing",
    "/requests/done", "/requests/deciding", "/requests/failed", "/requests/received", "/requests/refused",
    "/requests/queued", "/requests/withdrawn", "/requests/done/letters", "/requests/withdrawn/letters",
    "/requests/done/lineage", "/requests/done/certificate.html", "/requests/withdrawn/certificate.html",
)  # fmt: skip
"""Pages, where the word after /requests/ stands for a request."""
RUN = """const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then((found) => done(found.violations.map(
  (one) => one.id + ": " + one.nodes.map((node) => node.html.slice(0, 160)).join(" | "))));"""


def fill(world: World) -> tuple[str, dict[str, str]]:
    """A request in each state that has a page of its own; an admin's session, and the requests' ids."""
    ledger = world.ledger
    found = {"done": world.served().id, "withdrawn": world.served(target=ErasureRequest.of_samples(1, [3, 5])).id}
    ledger.withdrawals.withdraw(found["withdrawn"], "A later look found it.", actor="oscar")
    world.queued()
    world.serve(rungs=[rung("overwrite", "not enough evidence")], says="not enough evidence")
    found["deciding"] = ledger.requests.page(states=["deciding"]).requests[0].id
    found["failed"] = world.queued(target=ErasureRequest.of_class(2, 2)).id
    ledger.work.fail(world.claim(), "The client did not answer.", retry=False)
    found["received"] = world.ask().id
    found["refused"] = world.ask().id
    ledger.requests.refuse(found["refused"], "It must be kept by law.", actor="oscar")
    found["queued"] = world.queued().id
    ledger.accounts.add("ada", Role.ADMIN)
    return ledger.accounts.open_session("ada", by="test", lasting=timedelta(days=1)), found


def test_no_page_is_forgotten(app: FastAPI):
    """Each address that gives a page is looked at below; those that give a file, or go elsewhere, are named here."""
    files = {"/demo", "/oidc/start", "/oidc/back", "/trail/pin.txt", "/keys/{id}.public.pem", "/requests/{id}/progress",
             "/requests/{id}/report"}  # fmt: skip
    given = {route.path for route in app.routes if isinstance(route, APIRoute) and "GET" in route.methods}
    pages = {path for path in given - files if not re.search(r"^/(api|health|metrics)|\.(json|pdf|csv)$", path)}
    seen = [path.partition("?")[0] for path in (*OUTSIDE, *INSIDE)]
    shapes = {path: re.sub(r"{\w+}", "[^/]+", path) for path in pages}
    assert [path for path, shape in shapes.items() if not any(re.fullmatch(shape, one) for one in seen)] == []


@pytest.mark.slow
@pytest.mark.skipif(not Path(AXE).is_file(), reason="axe-core is not there; set FEDFORGET_AXE to its axe.min.js")
def test_axe_finds_nothing(browser: Browser, tmp_path: Path):
    home = tmp_path / "home"
    with Ledger.open(home, clock=Ticking(utc_now() - timedelta(hours=1))) as ledger:
        secret, requests = fill(World(ledger, ledger.clock))  # type: ignore[arg-type]
    source, wrong = Path(AXE).read_text(), []
    browser.driver.set_script_timeout(300)
    with running_console(home, "--no-worker") as console:
        browser.driver.get(console.url + "/sign-in")
        for path in (*OUTSIDE, *INSIDE):
            if path == INSIDE[0]:
                name = f"fedforget-{console.url.rpartition(':')[2]}"
                browser.driver.add_cookie({"name": name, "value": secret})
            word = path.split("/")[2] if path.startswith("/requests/") else ""
            address = console.url + path.replace(word, requests.get(word, word), 1) if word else console.url + path
            if path.endswith(".html"):  # in the console's sandbox no script runs; the paper itself is one file
                browser.driver.get(address)
                (tmp_path / "paper.html").write_text(browser.driver.page_source)
                address = (tmp_path / "paper.html").as_uri()
            for size, scheme, media in LOOKS:
                browser.sized(*WIDTHS[size], scheme, media)
                browser.driver.get(address)
                browser.driver.execute_script(UNFOLD)
                # By the debugger: the page's own policy lets no script of others in.
                browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": source})
                found = browser.driver.execute_async_script(RUN)
                wrong += [f"{path} {size} {scheme} {media}: {words}" for words in found]
    print(f"axe: {len(LOOKS) * len([*OUTSIDE, *INSIDE])} looks, {len(wrong)} violations.")
    assert wrong == []


def tab_to(browser: Browser, selector: str, most: int = 80) -> None:
    """Press Tab until this has the focus."""
    for _ in range(most):
        active = browser.driver.switch_to.active_element
        if browser.driver.execute_script("return arguments[0].matches(arguments[1])", active, selector):
            return
        active.send_keys(Keys.TAB)
    raise AssertionError(f"the Tab key does not lead to {selector} on {browser.driver.current_url}")


@pytest.mark.slow
def test_the_keyboard_alone_leads_to_a_certificate(browser: Browser, tmp_path: Path):
    began = time.monotonic()
    with running_console(tmp_path / "home") as console:
        browser.sized(*WIDTHS["desktop"])
        browser.driver.get(console.admin_link)
        pressed = 0
        for selector, seconds in (("#use-link", 10), ("#start-demo", 30), ("#try-honest", 200), ("#submit-request", 60),
                                  ("#printed", 300)):  # fmt: skip
            browser.see(selector, seconds)
            tab_to(browser, selector)
            browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
            pressed += 1
        assert browser.see(".verdict.good").text.startswith("Exact.")
        assert browser.driver.title == "Certificate of an erasure request: exact"
        print(f"From serve to a printed certificate: Enter {pressed} times, {time.monotonic() - began:.0f} s.")
        assert browser.complaints() == []
