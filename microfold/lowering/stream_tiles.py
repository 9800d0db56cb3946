"""Cuts whose first layers are computed row by row for some columns of the image at a time: tiles.

Where the caller's image can be read again, the first layers may run once for each of some tiles. Windows then
have rows of a tile's width; columns at the seams are computed for both tiles. What a tile leaves is held
whole until all are done; the layers behind take its rows together, and may be computed by rows, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from microfold.analysis.ranges import Ranges
from microfold.ir.node import Node, Value
from microfold.ir.views import ALIGNMENT
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Ranking, candidates
from microfold.lowering.stream_cuts import Cuts, last_of_first
from microfold.lowering.tile_columns import Tiled, tile_columns
from microfold.ops.columns import COLUMNS
from microfold.plan.stream.planner import StreamPlanner
from microfold.plan.stream.region import Region
from microfold.plan.stream.row_node import NEVER
from microfold.support.frozen import frozen

# How many tiles there may be.
TILES = (2, 3, 4)
# Tilings that are looked at closely: those with the least work of what may fit, and for the least arena that
# a refusal names; and of each, the regions behind the tiles.
CLOSE_LOOKS, LEANEST_LOOKS, BEHIND_LOOKS = 4, 2, 2
# What they need is known about, without kernels: they may fit so small a part of it.
SURELY = 0.85
# Multiply-accumulates that tiles may do again, as a part of the model's.
MOST_AGAIN = 0.5


@frozen(eq=False)
class Tiling:
    """A way to compute the first layers in tiles.

    Attributes:
        region: these layers by rows of full width.
        work: multiply-accumulates that tiles do again.
        need: bytes of windows, or rings, and results of tiles at the fullest moment.
    """

    region: Region
    tiled: Tiled
    work: int
    need: int


class Tilings:
    """How the first layers may be computed in tiles of about the same width."""

    def __init__(self, cuts: Cuts):
        self.cuts = cuts
        self._behind: dict[Region, list[tuple[int, int]]] = {}
        self._ringed: dict[Region, Region] = {}
        self._found: dict[tuple[Region, int], Tiling | None] = {}

    def within(self, limit: float) -> Iterator[Tiling]:
        """Those whose results fit some bytes, and that take not too much work."""
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

    def _tiling(self, region: Region, count: int, most: float) -> Tiling | None:
        """That of so many tiles; None if there is none, or it does more work again than `most`."""
        tiled = self._tiled(region, count)
        if tiled is None:
            return None
        work = sum(tile.macs for tile in tiled.tiles) - sum(each.node.macs() for each in region.nodes)
        return Tiling(region, tiled, work, self._need(region, tiled)) if work <= most else None

    def _tiled(self, region: Region, count: int) -> Tiled | None:
        """So many tiles of about the same width; None if there are none."""
        width = region.fronts[0].type.shape[COLUMNS]
        if width < count:
            return None
        bounds = [width * tile // count for tile in range(count + 1)]
        tiled = tile_columns(region.graph, region.start, region.end, bounds)
        return tiled if not isinstance(tiled, str) else None

    def fitting(self, limit: int) -> list[Tiling]:
        """Those that may fit, the ones with the least work."""
        found: list[Tiling] = []
        for tiling in sorted(self.within(limit), key=lambda each: each.work):
            if self._may_fit(tiling, limit):
                found.append(tiling)
            if len(found) == CLOSE_LOOKS:
                break
        return found

    def leanest(self, limit: float) -> list[Tiling]:
        """Those that need least, one of each result, if they may need less than some bytes."""
        found: dict[Region, tuple[int, Tiling]] = {}
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

    def _may_fit(self, tiling: Tiling, limit: float) -> bool:
        """Whether it may need no more than some bytes; what lies behind it takes longer to find out."""
        if tiling.need * SURELY > limit:
            return False
        return self._needs_behind(tiling.region)[0][0] * SURELY <= limit

    def cuts_of(self, tiling: Tiling) -> TiledCuts:
        """Cuts with these tiles."""
        ends = [end - tiling.region.end for _, end in self._needs_behind(tiling.region)[:BEHIND_LOOKS]]
        return TiledCuts(self.cuts, tiling.tiled, ends)

    def _need(self, region: Region, tiled: Tiled) -> int:
        shares: dict[Value, float] = {}
        for tile in tiled.tiles:
            computed = [(original.output, node) for node, original in tile.originals.items()]
            for whole, node in (*computed, *((node.operands[0], node) for node in tile.slices)):
                share = node.output.type.shape[COLUMNS] / whole.type.shape[COLUMNS]
                shares[whole] = max(shares.get(whole, 0.0), share)
        held = sum(value.type.nbytes for value in region.fronts)
        return held + min(self._fullest(each, shares) for each in self._forms(region))

    def _forms(self, region: Region) -> list[Region]:
        """A region with windows, and with rings."""
        if region not in self._ringed:
            self._ringed[region] = region.with_rings(region.may_be_rings)
        return [region, self._ringed[region]]

    def _fullest(self, region: Region, shares: Mapping[Value, float]) -> int:
        """Bytes of rows at the fullest moment, if of those of each value only a share is there."""
        windows, _, _ = self.cuts.planner([region]).streams[0]
        held = np.zeros(len(windows.operations) + 1)
        for value, block in (*windows.blocks.items(), *windows.newest.items()):
            if value not in region.held:
                held[block.moments] += block.size * shares.get(value, 1.0)
        return round(held.max())

    def _needs_behind(self, region: Region) -> list[tuple[int, int]]:
        """Bytes that are alive at most behind a region of which the result is whole.

        For each region that may follow, with the number of nodes up to its end, the fewest bytes first.
        """
        if region not in self._behind:
            self._behind[region] = self._find_needs_behind(region) or [(NEVER, region.end)]
        return self._behind[region]

    def _find_needs_behind(self, region: Region) -> list[tuple[int, int]]:
        """The same; of those that need more than the first `BEHIND_LOOKS`, not all."""
        found: list[tuple[int, int]] = []
        least = 0
        # Longer regions do all that shorter ones do: only what these hold whole may take less.
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


def _held_whole(region: Region) -> int:
    """Bytes that are alive before a region at least, or behind it."""
    return max(sum(v.type.nbytes for v in values) for values in (region.sources, region.fronts))


def _alive_behind(planner: StreamPlanner) -> int:
    """Bytes that are alive at most behind the first region."""
    layers = (index for index, each in enumerate(planner.planned) if each.region > 0)
    return max((planner.alive(index) for index in layers), default=0) * ALIGNMENT


class TiledCuts(Cuts):
    """The cuts of a graph whose first layers are computed tile by tile.

    Args:
        behind: how many nodes behind the tiles regions may have, what puts these together not counted.
    """

    def __init__(self, cuts: Cuts, tiled: Tiled, behind: Sequence[int]):
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
        """Those of what tiles compute among them."""
        layers = (self._layers[node].layer for tile in self.tiled.tiles for node in tile.originals)
        return self.scope.ranges.joined(*(layer.ranges for layer in layers if layer.ranges is not None))

    def whole(self, value: Value) -> Value:
        return self._whole.get(value, value)

    def _layer(self, node: Node, original: Node | None = None) -> Ranking:
        """A layer of the tiles, or behind them; `original`: that of which it computes columns."""
        if original is not None:
            # Its own kernels are those of its rows.
            ranking = self._layers[original]
            return replace(ranking, layer=_with_node(ranking.layer, node))
        some = next(iter(self._layers.values())).layer
        layer = replace(some, node=node)
        return Ranking(layer, candidates(layer, self.scope.guidance))

    @cached_property
    def promising(self) -> list[StreamPlanner]:
        """The tiles with the regions behind them that promise the smallest arenas."""
        graph = self.tiled.graph
        start = self.tiled.start
        tiles: list[Region] = []
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
    """What is known of a layer, of a node that computes some columns of it."""
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
