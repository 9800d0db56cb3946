"""Rows kept in rings."""

from __future__ import annotations

import pytest

from microfold.lowering.stream import Search, Streamed


@pytest.fixture
def all_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows stay in rings wherever kernels take addresses, whether that is worth it or not."""

    def every(search: Search, found: Streamed) -> Streamed:
        planner = search.ringed(found.planner)
        return found if planner is None else search.decided(planner)

    monkeypatch.setattr(Search, "with_fewer_rings", every)
