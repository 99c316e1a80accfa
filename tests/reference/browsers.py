"""Chromium for tests. With FEDFORGET_SCREENSHOTS=DIR the pages are kept as pictures: wide by day and by night, at a
phone's width, and as printed."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

TALLEST = 1700
NO_NAMES = r"""const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (nodes.nextNode()) { const node = nodes.currentNode;
  node.data = node.data.replace(/\/\S*\/home\//g, "…/fedforget/").replace(/[\w.-]+\/\d+(?![\w.])/g, "worker-1"); }"""
"""A kept picture names neither the machine nor the folder it was made on."""
WIDTHS = {"desktop": (1280, 900), "phone": (375, 812)}


class Browser:
    """Chromium, looked at as a person would."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        keep = os.environ.get("FEDFORGET_SCREENSHOTS")
        self.folder = Path(keep) if keep else None

    def see(self, selector: str, seconds: float = 30.0) -> WebElement:
        wait = WebDriverWait(self.driver, seconds, poll_frequency=0.2)
        return wait.until(
            lambda d: d.find_element(By.CSS_SELECTOR, selector), f"{selector} on {self.driver.current_url}"
        )

    def click(self, selector: str) -> None:
        self.see(selector).click()

    @property
    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def sized(self, width: int, height: int, scheme: str = "light", media: str = "") -> None:
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def look(self, name: str) -> None:
        """Nothing sticks out sideways, at any width; and a picture of each, if somebody wants them."""
        for size, scheme in (("desktop", "light"), ("desktop", "dark"), ("phone", "light")):
            width, height = WIDTHS[size]
            self.sized(width, height, scheme)
            wide = self.driver.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} wide at {width}"
            if self.folder is not None:
                self.keep(self.folder / f"{name}-{size}{'-dark' if scheme == 'dark' else ''}.png", width)
        self.sized(*WIDTHS["desktop"])
        if self.folder is not None:
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
            self.keep(self.folder / f"{name}-print.png", WIDTHS["desktop"][0])
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
            self.sized(*WIDTHS["desktop"])

    def keep(self, path: Path, width: int) -> None:
        """A picture of the page from its top, also of what is below the window."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.execute_script(NO_NAMES)
        high = self.driver.execute_script("return document.documentElement.scrollHeight")
        area = {"x": 0, "y": 0, "width": width, "height": min(high, TALLEST), "scale": 1}
        asked = {"format": "png", "captureBeyondViewport": True, "clip": area}
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        picture = Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")
        picture.quantize(128).save(path, optimize=True)  # a third of the size, and nobody sees it

    def complaints(self) -> list[str]:
        """What the browser itself had to say: blocked by the policy, missing files, errors in scripts."""
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        return [words for words in said if not words.endswith("422 (Unprocessable Entity)")]  # a forged certificate
