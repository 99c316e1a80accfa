"""Every page, by day and by night, wide and narrow: axe finds no violation. And the keyboard alone leads from the
sign-in to a certificate.

axe-core is no part of this repository: $FEDFORGET_AXE names its `axe.min.js`, or the test is skipped."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from browsers import WIDTHS, Browser
from console_server import running_console
from ledger_worlds import Ticking, World, rung
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from fedforget.ledger.book import Ledger
from fedforget.ledger.clock import utc_now
from fedforget.ledger.states import Role
from fedforget.requests import ErasureRequest

pytestmark = pytest.mark.slow
AXE = os.environ.get("FEDFORGET_AXE", "")
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
"""What is folded counts too."""
RUN = """const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then((found) => done(found.violations.map(
  (one) => one.id + ": " + one.nodes.map((node) => node.html.slice(0, 160)).join(" | "))));"""


def fill(world: World) -> tuple[str, dict[str, str]]:
    """A request in each state that has a page of its own; an admin's session, and the requests' ids."""
    ledger = world.ledger
    found = {"done": world.served().id}
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


@pytest.mark.skipif(not Path(AXE).is_file(), reason="axe-core is not there; set FEDFORGET_AXE to its axe.min.js")
def test_axe_finds_nothing(browser: Browser, tmp_path: Path):
    home = tmp_path / "home"
    with Ledger.open(home, clock=Ticking(utc_now() - timedelta(hours=1))) as ledger:
        secret, requests = fill(World(ledger, ledger.clock))  # type: ignore[arg-type]
    source, wrong = Path(AXE).read_text(), []
    with running_console(home, "--no-worker") as console:
        browser.driver.get(console.url + "/sign-in")
        pages = ["/sign-in", "/glossary"]
        inside = ["/", "/?view=new", "/?view=all&text=x&since=2026-01-01", "/requests/new", "/federations",
                  "/federations/digits", "/federations/digits/rollback?to=1", "/trail", "/verify", "/account",
                  "/accounts", "/nothing", *(f"/requests/{id}" for id in requests.values())]  # fmt: skip
        for path in [*pages, *inside]:
            if path == inside[0]:
                name = f"fedforget-{console.url.rpartition(':')[2]}"
                browser.driver.add_cookie({"name": name, "value": secret})
            for width in WIDTHS.values():
                for scheme in ("light", "dark"):
                    browser.sized(*width, scheme)
                    browser.driver.get(console.url + path)
                    browser.driver.execute_script(UNFOLD)
                    # By the debugger: the page's own policy lets no script of others in.
                    browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": source})
                    found = browser.driver.execute_async_script(RUN)
                    wrong += [f"{path} {width[0]} {scheme}: {words}" for words in found]
    print(f"axe: {4 * len([*pages, *inside])} looks, {len(wrong)} violations.")
    assert wrong == []


def tab_to(browser: Browser, selector: str, most: int = 80) -> None:
    """Press Tab until this has the focus."""
    for _ in range(most):
        active = browser.driver.switch_to.active_element
        if browser.driver.execute_script("return arguments[0].matches(arguments[1])", active, selector):
            return
        active.send_keys(Keys.TAB)
    raise AssertionError(f"the Tab key does not lead to {selector} on {browser.driver.current_url}")


def test_the_keyboard_alone_leads_to_a_certificate(browser: Browser, tmp_path: Path):
    began = time.monotonic()
    with running_console(tmp_path / "home") as console:
        browser.sized(*WIDTHS["desktop"])
        browser.driver.get(console.admin_link)
        pressed = 0
        for selector, seconds in (("#use-link", 10), ("#start-demo", 30), ("#try-honest", 200), ("#submit-request", 60),
                                  ("#certificate", 300)):  # fmt: skip
            browser.see(selector, seconds)
            tab_to(browser, selector)
            if selector != "#certificate":
                browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
                pressed += 1
        assert browser.driver.find_element(By.ID, "verdict").text == "Exact"
        print(f"From serve to a certificate by keyboard: Enter {pressed} times, {time.monotonic() - began:.0f} s.")
        assert browser.complaints() == []
