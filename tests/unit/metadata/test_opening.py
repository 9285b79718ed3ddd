"""A URL becomes a store, or an error that says why not."""

import asyncio
import sys
from pathlib import Path

import pytest

from roost.cli.machine import seams
from roost.errors import Invalid, Unavailable
from roost.host.log import Silence
from roost.metadata.opening import open_store
from roost.metadata.store import MetadataStore


async def opened(url: str) -> MetadataStore:
    return await open_store(url, seams=seams(), log=Silence(), holder="test")


def test_a_folder_is_a_store_of_this_process_until_it_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        url = f"dir://{tmp_path}/meta"
        store = await opened(url)
        lease = await store.grant(60)
        await store.put("a", b"1")
        await store.put("b", b"1", lease=lease.id)
        with pytest.raises(Unavailable, match="is in use by test"):
            await opened(url)

        await store.close()
        again = await opened(url)

        item = await again.get("a")
        assert item is not None
        assert item.value == b"1"
        assert await again.get("b") is None
        await again.close()

    asyncio.run(main())


def test_a_served_store_need_not_be_there_yet() -> None:
    async def main() -> None:
        store = await opened("meta://127.0.0.1:1")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await store.get("a")
        await store.close()

    asyncio.run(main())


def test_without_grpc_an_etcd_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "roost.metadata.etcd", None)

    with pytest.raises(Invalid, match=r"pip install 'roost\[etcd\]'"):
        asyncio.run(opened("etcd://127.0.0.1:1"))


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(Invalid, match="is no place for metadata"):
        asyncio.run(opened("redis://127.0.0.1:1"))
