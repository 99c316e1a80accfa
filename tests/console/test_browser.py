"""The main job in a real browser: from the printed link to a signed certificate.

With FEDFORGET_SCREENSHOTS=DIR the pages are kept as pictures."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from browsers import WIDTHS, Browser
from console_server import running_console
from ledger_worlds import DESCRIPTION, Ticking, World
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait
from signed_again import forged

from fedforget.ledger.book import Ledger
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.clock import utc_now
from fedforget.ledger.federations import Description
from fedforget.ledger.papers import code_of
from fedforget.requests import ErasureRequest

pytestmark = pytest.mark.real


def test_from_the_printed_link_to_a_signed_certificate(browser: Browser, tmp_path: Path):
    with running_console(tmp_path / "home") as console:
        browser.sized(*WIDTHS["desktop"])
        browser.driver.get(console.admin_link)
        browser.click("#use-link")
        browser.see("#start-demo")
        assert "works only once" in browser.text
        browser.look("first-page")
        browser.click("#start-demo")
        browser.see("a[href='/requests/new'].button", 120)

        browser.driver.get(console.url + "/requests/new?federation=demo")
        label = Select(browser.see("#label"))
        assert label.options[4].text == "3 – 30 samples", "only what exists is offered, with counts"
        label.select_by_value("3")
        browser.see("#subject").send_keys("case-17")
        browser.look("new-request")
        browser.click("#submit-request")
        browser.see(".live #bar", 30)
        browser.see(".steps .now")
        assert "Forget class 3 of client 0" in browser.text
        wait = WebDriverWait(browser.driver, 120, poll_frequency=0.1)
        reached: set[float] = set()

        def moves(driver: webdriver.Chrome) -> bool:
            reached.add(float(driver.find_element(By.ID, "bar").get_attribute("value") or 0))
            return len(reached - {0.0}) >= 2

        wait.until(moves, "live progress")
        assert browser.see(".steps .now").text in ("forgetting", "auditing")
        browser.look("at-work")
        browser.see("#certificate", 240)  # the page shows itself anew
        assert browser.see("#verdict").text == "Exact", "so small a federation is simply retrained"
        charts = browser.driver.find_elements(By.CSS_SELECTOR, "#evidence figure svg")
        assert len(charts) == 3, "what needs no oracle: the attacks' curves, the margins, what comes back"
        browser.look("request-done")

        certificate = kept_certificate(browser, tmp_path)
        assert certificate["measured"]["verdict"]["word"] == "exact"
        read_report(browser)
        verify_here(browser, console.url, tmp_path)
        look_around(browser, console.url)
        assert browser.complaints() == []
    assert console.process.returncode == 0, "".join(console.said)
    assert "Traceback" not in "".join(console.said)


def kept_certificate(browser: Browser, tmp_path: Path) -> dict[str, Any]:
    browser.click("#certificate")
    downloads = tmp_path / "downloads"
    wait = WebDriverWait(browser.driver, 20, poll_frequency=0.1)
    wait.until(lambda _: downloads.exists() and list(downloads.glob("certificate-*.json")))
    return read_certificate(next(downloads.glob("certificate-*.json")).read_text())


def read_report(browser: Browser) -> None:
    """It is shown in a sandbox: styled, and without an origin."""
    browser.click("#report")
    assert "Forgetting class 3 of client 0" in browser.see("h1").text
    assert browser.driver.execute_script("return self.origin") == "null"
    browser.driver.back()
    browser.see("#certificate")


def verify_here(browser: Browser, url: str, tmp_path: Path) -> None:
    """The downloaded certificate is genuine; with one figure changed it is refused."""
    path = next((tmp_path / "downloads").glob("certificate-*.json"))
    other = tmp_path / "forged.json"
    other.write_text(forged(path.read_text(), "case-17", "case-18"))
    for file, word in ((path, "Genuine."), (other, "Refused.")):
        browser.driver.get(url + "/verify")
        browser.see("#file").send_keys(str(file))
        browser.click("main button.main")
        assert word in browser.see("#verified").text


@pytest.mark.slow
def test_a_busy_queue(browser: Browser, tmp_path: Path):
    """What is late and what is due soon stand out, at any width."""
    home = tmp_path / "home"
    with Ledger.open(home, clock=Ticking(utc_now() - timedelta(days=33))) as ledger:
        secret = fill(World(ledger, ledger.clock))  # type: ignore[arg-type]
    with running_console(home, "--no-worker") as console:
        browser.sized(*WIDTHS["desktop"])
        browser.driver.get(console.url + "/sign-in")
        browser.look("sign-in")
        cookie = {"name": f"fedforget-{console.url.rpartition(':')[2]}", "value": secret}
        browser.driver.add_cookie(cookie)
        browser.driver.get(console.url + "/")
        rows = [row.get_attribute("class") for row in browser.driver.find_elements(By.CSS_SELECTOR, ".rows tbody tr")]
        assert rows == ["overdue", "soon", "soon", "later", "later", "later"]
        assert browser.see(".tiles .overdue .figure").text == "1"
        browser.look("busy-queue")
        browser.driver.find_element(By.PARTIAL_LINK_TEXT, "class 1 (one) of client 1").click()
        assert "It waits for an officer." in browser.text
        browser.look("deciding")
        browser.driver.get(console.url + "/federations/digits")
        assert len(browser.driver.find_elements(By.CSS_SELECTOR, ".edge.restores")) == 1
        browser.look("rolled-back")
        for path, name in (("/federations", "federations"), ("/federations/digits/rollback?to=1", "rollback"),
                           ("/account", "account"), ("/verify", "verify"), ("/nothing", "not-found")):  # fmt: skip
            browser.driver.get(console.url + path)
            browser.look(name)
        browser.driver.get_log("browser")  # it says that /nothing is not there
        assert browser.complaints() == []


@pytest.mark.slow
def test_the_form_follows_the_federation(browser: Browser, tmp_path: Path):
    home = tmp_path / "home"
    with Ledger.open(home) as ledger:
        World(ledger, Ticking())
        for name, shape in (("images", (1, 8, 8)), ("unknown", ())):
            about: Description = {**DESCRIPTION, "shape": list(shape)}
            ledger.federations.register(name, "local", "/nowhere", about, {"w": torch.zeros(3)})
        secrets = [
            ledger.accounts.open_session(name, by="test", lasting=timedelta(days=1)) for name in ("oscar", "ann")
        ]
    with running_console(home, "--no-worker") as console:
        browser.driver.get(console.url + "/sign-in")
        cookie = f"fedforget-{console.url.rpartition(':')[2]}"
        browser.driver.add_cookie({"name": cookie, "value": secrets[0]})
        browser.driver.get(console.url + "/requests/new")
        hints = {"images": "The images have 8x8 pixels.", "unknown": "", "digits": "There are columns 0 to 5."}
        for name, words in hints.items():
            Select(browser.see("#federation")).select_by_value(name)
            assert browser.see("#there").get_attribute("textContent") == words
        shown = ("#client option", "#label option:nth-child(2)", "#everything")
        assert [browser.see(place).get_attribute("textContent") for place in shown] == [
            "client 0 – 10 samples", "zero – 5 samples", "10 samples",
        ]  # fmt: skip
        browser.driver.add_cookie({"name": cookie, "value": secrets[1]})
        browser.driver.get(console.url + "/requests/new")
        Select(browser.see("#federation")).select_by_value("images")
        told = [browser.driver.find_element(By.CSS_SELECTOR, place).get_attribute("textContent") for place in shown]
        assert told == ["client 0", "zero", ""], "who asks sees no numbers"
        assert browser.complaints() == []


@pytest.mark.slow
def test_the_papers(browser: Browser, tmp_path: Path):
    """Letters, the register, where data lives on, the printed certificate, and its code under Verify: at any width."""
    home = tmp_path / "home"
    with Ledger.open(home, clock=Ticking(utc_now() - timedelta(days=33))) as ledger:
        secret = fill(World(ledger, ledger.clock))  # type: ignore[arg-type]
        done = next(row for row in ledger.requests.page(states=["done"]).requests if row.subject == "dsr-1")
        signed = ledger.versions.certificate_of(done.id)
        assert signed is not None
    with running_console(home, "--no-worker") as console:
        browser.driver.get(console.url + "/sign-in")
        browser.driver.add_cookie({"name": f"fedforget-{console.url.rpartition(':')[2]}", "value": secret})
        browser.driver.get(f"{console.url}/requests/{done.id}")
        for name, heading in (("letters", "Draft letters"), ("lineage", "Where the data lives on")):
            browser.driver.get(f"{console.url}/requests/{done.id}/{name}")
            assert browser.see("h1").text == heading
            browser.look(name)
        browser.driver.get(console.url + "/register")
        browser.look("register")
        browser.driver.get(console.url + "/verify")
        browser.see("#code").send_keys(code_of(signed.sha256))
        browser.click("main button.main")
        assert "It has not been withdrawn." in browser.see("#verified").text
        browser.look("verified-by-code")
        browser.driver.get(f"{console.url}/requests/{done.id}/certificate.html")
        assert browser.see("h1").text == "Certificate of an erasure request"
        browser.look("certificate")
        browser.driver.get(f"{console.url}/requests/{done.id}")
        browser.driver.find_element(By.XPATH, "//summary[.='Withdraw the certificate']").click()
        browser.see("#withdraw-reason").send_keys("A later look found it.")
        browser.click("form[action$='/withdraw'] button")
        browser.see("#next")
        browser.look("withdrawn")
        assert browser.complaints() == []


def fill(world: World) -> str:
    """Requests of all ages and in all states, and a rollback; the secret of an officer's session."""
    ledger, clock = world.ledger, world.clock
    world.served(subject="dsr-1", target=ErasureRequest.of_class(2, 2))
    world.ask(subject="dsr-2", target=ErasureRequest.of_client(2))
    clock.go_on(days=5)
    world.queued(subject="dsr-3", target=ErasureRequest.of_class(1, 1))
    world.serve(says="not forgotten")
    world.ask(subject="dsr-4", target=ErasureRequest.of_samples(0, [3, 5, 8]))
    clock.go_on(days=20)
    world.served(subject="dsr-5", target=ErasureRequest.of_class(0, 0))
    world.served(subject="dsr-6", target=ErasureRequest.of_class(1, 0))
    ledger.versions.roll_back("digits", 3, "The wrong client's data was named.", actor="oscar")
    clock.go_on(days=7)
    world.queued(subject="dsr-7", target=ErasureRequest.of_class(1, 2))
    world.ask(subject="dsr-8", target=ErasureRequest.of_client(0))
    refused = world.ask(subject="dsr-9", target=ErasureRequest.of_class(0, 1))
    ledger.requests.refuse(refused.id, "The records must be kept by law until 2031.", actor="oscar")
    return ledger.accounts.open_session("oscar", by="test", lasting=timedelta(days=100))


def look_around(browser: Browser, url: str) -> None:
    browser.driver.get(url + "/")
    assert "Nothing is open" in browser.text
    browser.driver.get(url + "/?view=done")
    browser.look("queue")
    browser.driver.get(url + "/federations/demo")
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, ".lineage circle")) == 2
    browser.look("federation")
    browser.driver.get(url + "/trail")
    browser.click("#check-chain")
    assert "Chain intact." in browser.see("#checked").text
    browser.look("trail")
    browser.driver.get(url + "/accounts")
    browser.look("accounts")
    by_keyboard(browser, url)


def by_keyboard(browser: Browser, url: str) -> None:
    """The first stop of the Tab key leads past the navigation; every stop can be seen; none is a trap."""
    browser.driver.get(url + "/requests/new")
    active = browser.driver.switch_to.active_element
    active.send_keys(Keys.TAB)
    first = browser.driver.switch_to.active_element
    assert first.get_attribute("class") == "skip"
    seen = []
    for _ in range(60):
        active = browser.driver.switch_to.active_element
        outline = browser.driver.execute_script("return getComputedStyle(arguments[0]).outlineStyle", active)
        seen.append(active.get_attribute("id") or active.text)
        if active.tag_name == "body":
            break
        assert outline != "none", f"{seen[-1]} shows no focus"
        active.send_keys(Keys.TAB)
    assert {"federation", "client", "label", "subject", "submit-request"} <= set(seen)
    assert browser.driver.switch_to.active_element.tag_name == "body", "the last stop leads out again"


@pytest.mark.slow
def test_a_request_that_waits_is_tried_on_the_next_rung_and_ends(browser: Browser, tmp_path: Path):
    """Client 1's sevens, at most overwritten: nothing can be shown, so it waits. Rebuilt, it is exact."""
    with running_console(tmp_path / "home") as console:
        browser.sized(*WIDTHS["desktop"])
        browser.driver.get(console.admin_link)
        browser.click("#use-link")
        browser.click("#start-demo")
        browser.see("#try-honest", 200)
        browser.look("two-to-try")
        browser.click("#try-honest")
        browser.click("#new-request details summary")
        Select(browser.see("#effort")).select_by_value("at most overwrite")
        browser.click("#submit-request")
        browser.see("#next", 240)
        assert "It waits for an officer." in browser.text
        assert "what it costs here is not known" in browser.text
        browser.click("#again-rebuild")
        browser.see("#certificate", 240)
        assert browser.see("#verdict").text == "Exact"
        browser.driver.get(console.url + "/glossary")
        browser.look("glossary")
        assert browser.complaints() == []
