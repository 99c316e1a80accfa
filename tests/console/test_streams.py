"""Live progress: what changes is told once, to everybody who watches, and streams end when they must."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from ledger_worlds import World

from fedforget.console import streams
from fedforget.console.problems import DeniedError
from fedforget.console.streams import Streams


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EVERY_SECONDS", 0.02)
    monkeypatch.setattr(streams, "QUIET_SECONDS", 0.2)


async def allowed() -> bool:
    return True


async def news(lines: AsyncIterator[str]) -> dict[str, object]:
    while True:
        line = await asyncio.wait_for(anext(lines), 10)
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))


def test_progress_is_told_as_it_comes(world: World):
    async def watch() -> None:
        request = world.queued()
        watching = Streams(world.ledger, 8)
        first, second = (watching.watch(request.id, "ann", allowed) for _ in range(2))
        assert (await news(first))["state"] == "queued"
        assert (await news(second))["state"] == "queued"
        claim = world.claim()
        for lines in (first, second):
            told = await news(lines)
            while told["state"] != "forgetting":
                told = await news(lines)
            assert told["fraction"] is None
        world.ledger.work.set_progress(claim, "measuring", 0.25)
        told = await news(first)
        assert (told["stage"], told["fraction"]) == ("measuring", 0.25)
        world.ledger.work.start_audit(claim)
        world.ledger.versions.finish(claim, world.result(claim))
        while told["state"] != "done":
            told = await news(first)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(first), 10)
        await second.aclose()
        assert not watching._seen
        assert not watching._open

    asyncio.run(watch())


def test_it_ends_with_the_session(world: World):
    async def watch() -> None:
        request = world.queued()
        may = [True, False]

        async def still() -> bool:
            return may.pop(0)

        lines = [line async for line in Streams(world.ledger, 8).watch(request.id, "ann", still)]
        assert [line for line in lines if line.startswith(":")] == [": still here\n\n"]

    asyncio.run(asyncio.wait_for(watch(), 10))


def test_it_ends_when_the_console_stops(world: World):
    async def watch() -> None:
        request = world.queued()
        watching = Streams(world.ledger, 8)
        lines = watching.watch(request.id, "ann", allowed)
        await news(lines)
        asyncio.get_running_loop().call_later(0.1, watching.close)
        async with asyncio.timeout(10):
            assert len([line async for line in lines]) < 3

    asyncio.run(watch())


def test_nobody_gets_all_connections(world: World):
    async def watch() -> None:
        request = world.queued()
        watching = Streams(world.ledger, 1)
        watching.check("ann")
        lines = watching.watch(request.id, "ann", allowed)
        await news(lines)
        with pytest.raises(DeniedError, match="Too many pages"):
            watching.check("ann")
        watching.check("bob")
        await lines.aclose()
        watching.check("ann")

    asyncio.run(watch())
