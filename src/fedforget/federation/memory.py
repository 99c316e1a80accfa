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


def _left_on_the_machine() -> int:
    with suppress(OSError), open("/proc/meminfo") as info:
        for line in info:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
                    yield max(0, free + _cached(group / "memory.stat"))


_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def _cached(stat: Path) -> int:
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0
