"""Downloads against a real server on 127.0.0.1 that breaks off, ignores ranges, stalls and sends wrong bytes."""

from __future__ import annotations

import hashlib
import io
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from fedforget.data import download
from fedforget.data.download import fetch, verify
from fedforget.errors import InputError

BODY = np.random.default_rng(0).bytes(700_000)
MD5 = hashlib.md5(BODY).hexdigest()


def watched(monkeypatch: pytest.MonkeyPatch, report: download.Progress) -> None:
    """From now on downloads report to this, not to a bar."""
    monkeypatch.setattr(download, "_bar", lambda name: nullcontext(report))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "archive.bin"


def part_of(target: Path) -> Path:
    return target.with_name(target.name + ".part")


@pytest.fixture
def dead_url() -> str:
    """An address nobody listens on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/archive.bin"


def test_a_download_arrives_whole_and_reports_progress(site, target, monkeypatch) -> None:
    site.files = {"/archive.bin": BODY}
    steps: list[tuple[int, int | None]] = []
    watched(monkeypatch, lambda *step: steps.append(step))
    assert fetch(site.url("archive.bin"), target, MD5) == target
    assert target.read_bytes() == BODY
    assert not part_of(target).exists()
    assert steps[0] == (0, len(BODY))
    assert steps[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert len(steps) > 2
    assert site.asked == [("/archive.bin", None)]


def test_a_right_file_is_not_downloaded_again_and_a_damaged_one_is(site, target) -> None:
    site.files = {"/archive.bin": BODY}
    target.parent.mkdir()
    target.write_bytes(BODY)
    fetch(site.url("archive.bin"), target, MD5)
    assert site.asked == []
    target.write_bytes(BODY[:-1] + b"?")
    fetch(site.url("archive.bin"), target, MD5)
    assert target.read_bytes() == BODY


def test_a_broken_download_is_resumed_where_it_broke(site, target, monkeypatch) -> None:
    site.files = {"/archive.bin": BODY}
    site.break_once_after = {"/archive.bin": 300_001}
    with pytest.raises(InputError, match=r"archive\.bin broke off after 300,001 bytes .* run it again to resume\.$"):
        fetch(site.url("archive.bin"), target, MD5)
    assert not target.exists()
    assert part_of(target).read_bytes() == BODY[:300_001]

    steps: list[tuple[int, int | None]] = []
    watched(monkeypatch, lambda *step: steps.append(step))
    fetch(site.url("archive.bin"), target, MD5)
    assert target.read_bytes() == BODY
    assert site.asked == [("/archive.bin", None), ("/archive.bin", "bytes=300001-")]
    assert steps[0] == (300_001, len(BODY))
    assert not part_of(target).exists()


def test_a_body_of_unknown_length_is_resumed_too(site, target, monkeypatch) -> None:
    site.files = {"/archive.bin": BODY}
    site.chunked = True
    site.break_once_after = {"/archive.bin": 300_001}
    with pytest.raises(InputError, match="run it again to resume"):
        fetch(site.url("archive.bin"), target, MD5)
    have = part_of(target).read_bytes()
    assert len(have) >= download.BLOCK
    assert BODY.startswith(have)

    steps: list[tuple[int, int | None]] = []
    watched(monkeypatch, lambda *step: steps.append(step))
    fetch(site.url("archive.bin"), target, MD5)
    assert target.read_bytes() == BODY
    assert site.asked[1] == ("/archive.bin", f"bytes={len(have)}-")
    assert steps[0] == (len(have), None)


def test_the_second_mirror_goes_on_where_the_first_broke(site, target) -> None:
    site.files = {"/a/archive.bin": BODY, "/b/archive.bin": BODY}
    site.break_once_after = {"/a/archive.bin": 1000}
    fetch([site.url("a/archive.bin"), site.url("b/archive.bin")], target, MD5)
    assert target.read_bytes() == BODY
    assert site.asked == [("/a/archive.bin", None), ("/b/archive.bin", "bytes=1000-")]


def test_a_server_that_ignores_ranges_starts_over(site, target) -> None:
    site.files = {"/archive.bin": BODY}
    site.ignores_range = True
    target.parent.mkdir()
    part_of(target).write_bytes(BODY[:5000])
    fetch(site.url("archive.bin"), target, MD5)
    assert site.asked == [("/archive.bin", "bytes=5000-")]
    assert target.read_bytes() == BODY


def test_a_server_that_sends_another_range_is_not_believed(site, target) -> None:
    site.files = {"/archive.bin": BODY}
    site.range_shift = 7
    target.parent.mkdir()
    part_of(target).write_bytes(BODY[:5000])
    with pytest.raises(InputError, match="another range"):
        fetch(site.url("archive.bin"), target, MD5)
    assert not target.exists()
    assert not part_of(target).exists()


def test_a_part_longer_than_the_file_is_thrown_away(site, target) -> None:
    site.files = {"/archive.bin": BODY}
    target.parent.mkdir()
    part_of(target).write_bytes(BODY + b"more")
    fetch(site.url("archive.bin"), target, MD5)
    assert target.read_bytes() == BODY
    assert site.asked[-1] == ("/archive.bin", None)


def test_a_whole_part_needs_no_network(dead_url, target) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(BODY)
    fetch(dead_url, target, MD5)
    assert target.read_bytes() == BODY


def test_wrong_bytes_are_deleted_and_refused(site, target) -> None:
    site.files = {"/archive.bin": BODY[:-1] + b"?"}
    with pytest.raises(InputError, match=r"archive\.bin could not be downloaded .* wrong md5 sum"):
        fetch(site.url("archive.bin"), target, MD5)
    assert list(target.parent.iterdir()) == []


def test_wrong_bytes_from_one_mirror_do_not_spoil_the_next(site, target) -> None:
    site.files = {"/a/archive.bin": b"<html>please log in</html>", "/b/archive.bin": BODY}
    fetch([site.url("a/archive.bin"), site.url("b/archive.bin")], target, MD5)
    assert target.read_bytes() == BODY
    assert site.asked[-1] == ("/b/archive.bin", None)


def test_not_found_on_one_mirror_found_on_the_next(site, target) -> None:
    site.files = {"/b/archive.bin": BODY}
    fetch([site.url("a/archive.bin"), site.url("b/archive.bin")], target, MD5)
    assert target.read_bytes() == BODY


def test_all_mirrors_down_names_each_and_what_to_do(site, target, dead_url) -> None:
    with pytest.raises(InputError) as caught:
        fetch([site.url("archive.bin"), dead_url], target, MD5)
    text = str(caught.value)
    assert "HTTP 404" in text
    assert dead_url in text
    assert f"put the file into {target.parent}" in text
    assert not target.exists()


def test_no_test_downloads_from_beyond_this_machine(target) -> None:
    with pytest.raises(InputError, match=r"192\.0\.2\.1 is beyond this machine, and tests stay on it"):
        fetch(["http://192.0.2.1/archive.bin"], target, MD5)


def test_a_stalled_server_times_out_and_keeps_what_came(site, target, monkeypatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 1.0)
    site.files = {"/archive.bin": BODY}
    site.break_once_after = {"/archive.bin": download.BLOCK + 10}
    site.stalls = True
    with pytest.raises(InputError, match="run it again to resume"):
        fetch(site.url("archive.bin"), target, MD5)
    assert not site.gave_up, "the server still holds the line"
    assert part_of(target).stat().st_size >= download.BLOCK
    assert BODY.startswith(part_of(target).read_bytes())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_clear_sentence(site, target) -> None:
    site.files = {"/archive.bin": BODY}
    target.parent.mkdir()
    part_of(target).symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"^The disk is full: archive\.bin does not fit into .* free some space"):
        fetch(site.url("archive.bin"), target, MD5)
    assert not target.exists()


def test_a_place_that_cannot_be_written_is_one_clear_sentence(site, target) -> None:
    site.files = {"/archive.bin": BODY}
    target.parent.write_text("a file where the cache folder should be")
    with pytest.raises(InputError, match=r"cannot be written to .* XDG_CACHE_HOME"):
        fetch(site.url("archive.bin"), target, MD5)


def test_an_interrupted_download_leaves_its_part(site, target, monkeypatch) -> None:
    site.files = {"/archive.bin": BODY}

    def interrupt(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        watched(patch, interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch(site.url("archive.bin"), target, MD5)
    assert 0 < part_of(target).stat().st_size < len(BODY)
    fetch(site.url("archive.bin"), target, MD5)
    assert target.read_bytes() == BODY


def test_a_terminal_shows_a_bar_and_a_pipe_shows_nothing(site, target, monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    site.files = {"/archive.bin": BODY}
    for stream, expected in ((Terminal(), True), (io.StringIO(), False)):
        target.unlink(missing_ok=True)
        monkeypatch.setattr(sys, "stderr", stream)
        fetch(site.url("archive.bin"), target, MD5)
        assert ("Downloading archive.bin" in stream.getvalue()) == expected
        assert (stream.getvalue() == "") != expected


def test_verify(tmp_path: Path) -> None:
    file = tmp_path / "x.gz"
    with pytest.raises(InputError, match=r"x\.gz is missing"):
        verify(file, MD5)
    file.write_bytes(BODY)
    verify(file, MD5)
    file.write_bytes(BODY + b"!")
    with pytest.raises(InputError, match=r"x\.gz is damaged \(its md5 is wrong\)"):
        verify(file, MD5)


@pytest.mark.real
def test_the_data_package_needs_only_torch_numpy_pyarrow_and_pillow() -> None:
    """On a bare GPU machine there is neither Rich nor scikit-learn, and nothing may import them in passing."""
    script = """
import sys
for name in ("rich", "sklearn", "scipy", "typer", "safetensors", "matplotlib", "jinja2", "pandas"):
    sys.modules[name] = None
import fedforget.data, fedforget.data.backdoor, fedforget.data.partition, fedforget.data.download as download
sys.stderr.isatty = lambda: True
with download._bar("x") as report:
    report(1, None)
try:
    fedforget.data.load_dataset("digits")
except fedforget.data.InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "The data set 'digits' comes with scikit-learn, which is not installed; pip install scikit-learn.\n"
    )
