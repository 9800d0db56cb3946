"""Rows kept in rings."""

from __future__ import annotations

import pytest

from microfold.lowering.streamed import Streamed
from microfold.lowering.streaming_search import StreamingSearch
from microfold.plan.stream.row_node import RowNode


@pytest.fixture
def all_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows stay in rings wherever kernels take addresses, whether that is worth it or not."""

    def every(search: StreamingSearch, found: Streamed) -> Streamed:
        planner = search.with_ring_buffers(found.planner)
        return found if planner is None else search.decided(planner)

    monkeypatch.setattr(StreamingSearch, "with_fewer_non_contiguous_buffers", every)


@pytest.fixture
def all_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that stay are carried wherever they can be, whether that is worth it or not."""

    def every(search: StreamingSearch, found: Streamed) -> Streamed:
        values = [value for region in found.planner.regions for value in region.may_be_carried]
        planner = search.with_ring_buffers(found.planner, (), values)
        assert planner is not None
        return search.decided(planner) if values else found

    monkeypatch.setattr(StreamingSearch, "with_fewer_non_contiguous_buffers", every)


@pytest.fixture
def no_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel takes addresses of rows."""

    def none(search: StreamingSearch, node: RowNode) -> None:
        del search, node

    monkeypatch.setattr(StreamingSearch, "_least_by_address", none)
