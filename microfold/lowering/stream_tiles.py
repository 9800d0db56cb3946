"""Streaming partitions whose first layers are computed in tiles: row by row, for some columns at a time.

If the caller's image can be read again, the first layers may run once for each tile. Windows then have rows
of a tile's width, but columns at the seams are computed for both tiles. The results of the tiles are resident
until all tiles are done. The next layers read their rows as a whole, and may also be streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.ranges import Ranges
from microfold.ir.node import Node, Value
from microfold.ir.views import ALIGNMENT
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import LayerCandidates, candidates
from microfold.lowering.streaming_partitions import StreamingPartitions, last_of_first
from microfold.lowering.tile_columns import Tiled, tile_columns
from microfold.ops.columns import COLUMNS
from microfold.plan.stream.planner import StreamPlanner
from microfold.plan.stream.region import StreamRegion
from microfold.plan.stream.row_node import NEVER

# Possible numbers of tiles.
TILES = (2, 3, 4)
# Number of tilings that are evaluated: the ones with the least work that may fit, and the ones for the least
# arena that an error names; and number of regions after the tiles, for each of them.
CLOSE_LOOKS, LEANEST_LOOKS, BEHIND_LOOKS = 4, 2, 2
# The need of a tiling is estimated without kernels. The real need may be as small as this fraction of it.
SURELY = 0.85
# Maximum multiply-accumulates that tiles compute repeatedly, as a fraction of the model's.
MOST_AGAIN = 0.5


class StreamTiling(Struct, frozen=True, eq=False):
    """Division of the first layers into tiles.

    Attributes:
        region: these layers, streamed at full width.
        work: multiply-accumulates that tiles compute repeatedly.
        need: bytes of windows or ring buffers, and of the tiles' results, at the moment with the most of
            them.
    """

    region: StreamRegion
    tiled: Tiled
    work: int
    need: int


class Tilings:
    """Possible divisions of the first layers into tiles of about equal width."""

    def __init__(self, cuts: StreamingPartitions):
        self.cuts = cuts
        self._behind: dict[StreamRegion, list[tuple[int, int]]] = {}
        self._ringed: dict[StreamRegion, StreamRegion] = {}
        self._found: dict[tuple[StreamRegion, int], StreamTiling | None] = {}

    def within(self, limit: float) -> Iterator[StreamTiling]:
        """Yield the tilings whose results fit `limit` bytes, and whose additional work is limited."""
        graph = self.cuts.scope.graph
        whole = sum(node.macs() for node in graph.nodes)
        for region in self.cuts.prefixes:
            if region.graph is not graph or not region.inputs or region.sources:
                continue
            if sum(value.type.nbytes for value in region.fronts) > limit:
                continue
            for count in TILES:
                if (region, count) not in self._found:
                    self._found[region, count] = self._tiling(region, count, MOST_AGAIN * whole)
                found = self._found[region, count]
                if found is None:
                    break
                yield found

    def _tiling(self, region: StreamRegion, count: int, most: float) -> StreamTiling | None:
        """Return the tiling with `count` tiles; None if there is none, or its extra work exceeds `most`."""
        tiled = self._tiled(region, count)
        if tiled is None:
            return None
        work = sum(tile.macs for tile in tiled.tiles) - sum(each.node.macs() for each in region.nodes)
        return StreamTiling(region, tiled, work, self._need(region, tiled)) if work <= most else None

    def _tiled(self, region: StreamRegion, count: int) -> Tiled | None:
        """Return the graph with `count` tiles of about equal width; None if that is impossible."""
        width = region.fronts[0].type.shape[COLUMNS]
        if width < count:
            return None
        bounds = [width * tile // count for tile in range(count + 1)]
        tiled = tile_columns(region.graph, region.start, region.end, bounds)
        return tiled if not isinstance(tiled, str) else None

    def fitting(self, limit: int) -> list[StreamTiling]:
        """Return the tilings that may fit and have the least work."""
        found: list[StreamTiling] = []
        for tiling in sorted(self.within(limit), key=lambda each: each.work):
            if self._may_fit(tiling, limit):
                found.append(tiling)
            if len(found) == CLOSE_LOOKS:
                break
        return found

    def with_least_memory(self, limit: float) -> list[StreamTiling]:
        """Return the tilings with the least need, one for each region, if they may fit `limit` bytes."""
        found: dict[StreamRegion, tuple[int, StreamTiling]] = {}
        for tiling in sorted(self.within(limit), key=lambda each: each.need):
            taken = sorted(need for need, _ in found.values())[:LEANEST_LOOKS]
            if len(taken) == LEANEST_LOOKS and tiling.need >= taken[-1]:
                break
            if not self._may_fit(tiling, limit):
                continue
            need = max(tiling.need, self._needs_behind(tiling.region)[0][0])
            best = found.get(tiling.region)
            if best is None or need < best[0]:
                found[tiling.region] = need, tiling
        return [tiling for _, tiling in sorted(found.values(), key=lambda each: each[0])[:LEANEST_LOOKS]]

    def _may_fit(self, tiling: StreamTiling, limit: float) -> bool:
        """Return whether a tiling may fit; the layers after it are checked last, because this is slow."""
        if tiling.need * SURELY > limit:
            return False
        return self._needs_behind(tiling.region)[0][0] * SURELY <= limit

    def partitions_of(self, tiling: StreamTiling) -> TiledPartitions:
        """Return the partitions with these tiles."""
        ends = [end - tiling.region.end for _, end in self._needs_behind(tiling.region)[:BEHIND_LOOKS]]
        return TiledPartitions(self.cuts, tiling.tiled, ends)

    def _need(self, region: StreamRegion, tiled: Tiled) -> int:
        shares: dict[Value, float] = {}
        for tile in tiled.tiles:
            computed = [(original.output, node) for node, original in tile.originals.items()]
            for whole, node in (*computed, *((node.operands[0], node) for node in tile.slices)):
                share = node.output.type.shape[COLUMNS] / whole.type.shape[COLUMNS]
                shares[whole] = max(shares.get(whole, 0.0), share)
        held = sum(value.type.nbytes for value in region.fronts)
        return held + min(self._peak_need(each, shares) for each in self._forms(region))

    def _forms(self, region: StreamRegion) -> list[StreamRegion]:
        """Return a region with windows, and with ring buffers."""
        if region not in self._ringed:
            self._ringed[region] = region.with_rings(region.may_be_rings)
        return [region, self._ringed[region]]

    def _peak_need(self, region: StreamRegion, shares: Mapping[Value, float]) -> int:
        """Return the maximum of live bytes over all moments, if each value keeps only a share of its rows."""
        windows, _, _ = self.cuts.planner([region]).streams[0]
        held = np.zeros(len(windows.operations) + 1)
        for value, block in (*windows.blocks.items(), *windows.newest.items()):
            if value not in region.held:
                held[block.moments] += block.size * shares.get(value, 1.0)
        return round(held.max())

    def _needs_behind(self, region: StreamRegion) -> list[tuple[int, int]]:
        """Return the largest number of live bytes after a region whose result is resident.

        Each region that may follow has an entry: the bytes, and the number of nodes up to its end; the fewest
        bytes first.
        """
        if region not in self._behind:
            self._behind[region] = self._find_needs_behind(region) or [(NEVER, region.end)]
        return self._behind[region]

    def _find_needs_behind(self, region: StreamRegion) -> list[tuple[int, int]]:
        """Return `_needs_behind`; entries after the first `BEHIND_LOOKS` may be missing."""
        found: list[tuple[int, int]] = []
        least = 0
        # Longer regions contain shorter ones. Only the resident values of the shorter ones may need less in
        # them.
        for behind in self.cuts.regions_from(region.end):
            enough = last_of_first((need for need, _ in found), BEHIND_LOOKS)
            if least > enough:
                break
            if _held_whole(behind) > enough:
                continue
            planners = [self.cuts.planner([region, form]) for form in self._forms(behind)]
            found.append((min(map(_alive_behind, planners)), behind.end))
            held = min(planner.held_in_last_region(apart=behind.fronts) for planner in planners)
            least = max(least, held * ALIGNMENT)
        return sorted(found)


def _held_whole(region: StreamRegion) -> int:
    """Return a lower bound of the bytes that are live before or after a region."""
    return max(sum(v.type.nbytes for v in values) for values in (region.sources, region.fronts))


def _alive_behind(planner: StreamPlanner) -> int:
    """Return the largest number of live bytes after the first region."""
    layers = (index for index, each in enumerate(planner.planned) if each.region > 0)
    return max((planner.alive(index) for index in layers), default=0) * ALIGNMENT


class TiledPartitions(StreamingPartitions):
    """Streaming partitions of a graph whose first layers are computed tile by tile.

    Args:
        behind: numbers of nodes after the tiles at which a region may end, without the nodes that join the
            tiles.
    """

    def __init__(self, cuts: StreamingPartitions, tiled: Tiled, behind: Sequence[int]):
        super().__init__(cuts.scope, cuts.options)
        self.tiled = tiled
        self.behind = behind
        self._whole: dict[Value, Value] = {}
        for tile in tiled.tiles:
            self._whole |= {node.output: node.operands[0] for node in tile.slices}
            self._whole |= {node.output: original.output for node, original in tile.originals.items()}
            for node in tile.nodes:
                self._layers[node] = self._layer(node, tile.originals.get(node))
        for node in tiled.joins:
            self._layers[node] = self._layer(node)

    @property
    def ranges(self) -> Ranges:
        """Proved ranges, including the values that tiles compute."""
        layers = (self._layers[node].layer for tile in self.tiled.tiles for node in tile.originals)
        return self.scope.ranges.joined(*(layer.ranges for layer in layers if layer.ranges is not None))

    def whole(self, value: Value) -> Value:
        return self._whole.get(value, value)

    def _layer(self, node: Node, original: Node | None = None) -> LayerCandidates:
        """Return a layer of a tile, or after the tiles; `original`: node whose columns it computes."""
        if original is not None:
            # The kernels of the whole layer are replaced by kernels for its rows.
            ranking = self._layers[original]
            return replace(ranking, layer=_with_node(ranking.layer, node))
        some = next(iter(self._layers.values())).layer
        layer = replace(some, node=node)
        return LayerCandidates(layer, candidates(layer, self.scope.guidance))

    @cached_property
    def shortlist(self) -> list[StreamPlanner]:
        """Partitions with these tiles and the smallest expected arenas."""
        graph = self.tiled.graph
        start = self.tiled.start
        tiles: list[StreamRegion] = []
        for tile in self.tiled.tiles:
            rows = [self._by_rows(node) for node in tile.nodes]
            refused = next((each for each in rows if isinstance(each, str)), None)
            nodes_by_rows = [each for each in rows if not isinstance(each, str)]
            region = refused or self._region(graph, nodes_by_rows, start + len(tile.slices))
            if region is None or isinstance(region, str):
                self.reason = self.reason or (region or "")
                return []
            tiles.append(region)
            start += len(tile)
        ends = {start + len(self.tiled.joins) + count for count in self.behind}
        found = self._needs([*tiles, region] for region in self._regions(graph, start, ends.__contains__))
        found.sort(key=lambda each: each[0])
        for need, planner in found[:1]:
            found += self._with_further_regions(need, planner)
        found.sort(key=lambda each: each[0])
        return [planner for _, planner in found[:BEHIND_LOOKS]]


def _with_node(layer: LayerContext, node: Node) -> LayerContext:
    """Return a layer's context for a node that computes some of its columns."""
    ranges = layer.ranges
    if ranges is not None:
        pairs = zip((*layer.node.inputs, *layer.node.outputs), (*node.inputs, *node.outputs), strict=True)
        values = {
            own: ranges.values[whole]
            for whole, own in pairs
            if whole is not None and own is not None and whole in ranges.values
        }
        ranges = ranges.moved(layer.node, node, values)
    return replace(layer, node=node, ranges=ranges)
