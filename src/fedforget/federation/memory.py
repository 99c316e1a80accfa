"""How much memory the machine has left, asked before something large is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch


def available_bytes(device: torch.device) -> int:
    """Bytes that can be allocated on `device` now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(_left_on_the_machine(), *_left_in_groups())


def number_in(file: Path, name: str) -> int | None:
    """What a file of the system, such as those in /proc, says of `name`; None where there is no such line or file."""
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.split()[:1] in ([name], [f"{name}:"]):
                return int(line.split()[1])
    return None


def _left_on_the_machine() -> int:
    kilobytes = number_in(Path("/proc/meminfo"), "MemAvailable")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if kilobytes is None else kilobytes * 1024


def _left_in_groups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """What the control groups of this process still allow, as a container or a batch system sets them up; the page
    cache that can be given back counts as free. Version 2 has one tree, version 1 one for memory alone."""
    yield sys.maxsize
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            tree = root / controllers
            limit, used = ("memory.max", "memory.current") if not controllers else _VERSION_1
            folder = tree / place.strip("/")
            for group in (folder, *folder.parents):
                if group == root.parent or not group.is_relative_to(tree):
                    break
                with suppress(OSError, ValueError):
                    free = int((group / limit).read_text()) - int((group / used).read_text())
                    yield max(0, free + (number_in(group / "memory.stat", "inactive_file") or 0))


_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
