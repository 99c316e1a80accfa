"""How much memory the machine has left, asked before something large is made."""

from __future__ import annotations

import os
from contextlib import suppress

import torch


def available_bytes(device: torch.device) -> int:
    """Bytes that can be allocated on `device` now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    with suppress(OSError), open("/proc/meminfo") as info:
        for line in info:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
