"""Planner of streamed models, given the kernels that compute them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property

from microfold.ir.node import Value
from microfold.ir.views import ALIGNMENT
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.overlap import overlap_of
from microfold.plan.arena import ArenaPlan, plan_from_bound
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage
from microfold.plan.memory import overlaps_of
from microfold.plan.overlap import Overlap, align
from microfold.plan.problem import units
from microfold.plan.stream.blocks import StreamBlock, block, busiest, moments_of, shared_in_call
from microfold.plan.stream.layers import BandLayer
from microfold.plan.stream.memory import StreamMemory
from microfold.plan.stream.partial_liveness import overlaps_in_time
from microfold.plan.stream.timeline import Timeline
from microfold.support.memo import Remembered


class StreamPlanner(Timeline):
    """Planner of all blocks of a timeline, for different kernels.

    Searches pose the same problems many times, so that results are cached.
    """

    @cached_property
    def _remembered(self) -> Remembered:
        return Remembered()

    @cached_property
    def _placed(self) -> dict[Hashable, ArenaPlan]:
        return {}

    def overlaps(self, index: int, kernel: Kernel) -> Sequence[Overlap]:
        """Return the allowed overlaps of a layer's result with operands that it reads last."""
        return self._remembered(("overlaps", index, kernel), lambda: self._overlaps_of(index, kernel))

    def _overlaps_of(self, index: int, kernel: Kernel) -> Sequence[Overlap]:
        planned = self.planned[index]
        if planned.band is not None:
            return self._overlaps_of_band(planned.band, planned.region, kernel)
        assert planned.call is not None
        found = overlaps_of(planned.call, planned.layer, kernel, self._storages, self._views)
        shifts = self._shifts
        made: list[Overlap] = []
        for each in found:
            source, target = self.blocks[each.source], self.blocks[each.target]
            if source.last != self.moments_of(index)[0] or target.first != source.last:
                continue
            # Distances are relative to the first row, which comes after the padding.
            distance = each.distance + shifts.get(each.target, 0) - shifts.get(each.source, 0)
            made.append(Overlap(source, target, distance, each.exact))
        return made

    @cached_property
    def _shifts(self) -> Mapping[Storage, int]:
        """Bytes of padding in front of storages of resident images, see `shift`."""
        return {self._storages[root]: self.shift(root) for root in self._held_in}

    def _overlaps_of_band(self, layer: BandLayer, region: int, kernel: Kernel) -> list[Overlap]:
        """Return the overlaps that this kernel allows in every event in which both windows are alive."""
        node = layer.node
        windows, start, _ = self.streams[region]
        target = self.newest_blocks.get(node.output) or self.window_blocks[node.output]
        read = [self.window_blocks.get(value) for value in node.node.operands]
        found: list[Overlap] = []
        for index in node.readings:
            value = node.node.inputs[index]
            assert value is not None
            if value in self.newest_blocks:
                continue
            source = self.window_blocks[value]
            common = source.times & target.times
            events = (start + event for event in windows.events[node])
            operand_reads = dict(zip(events, windows.operand_reads[node], strict=True))
            met = moments_of(common).tolist()
            # Storage that is read twice is not overlapped.
            if read.count(source) > 1 or any(
                moment not in operand_reads or not operand_reads[moment][index].free for moment in met
            ):
                continue
            # Windows of resident values do not always begin where their blocks begin.
            places = {self.window_offset(value) + operand_reads[moment][index].offset for moment in met}
            if not places or index not in kernel.data_inputs(layer.band.layer):
                continue
            distance = overlap_of(kernel, layer.band.layer, index)
            if distance is not None:
                found.append(Overlap(source, target, distance - min(places)))
            elif len(places) == 1 and kernel.in_place(layer.band.layer, index):
                place = min(places)
                # Drop overlaps that alignment makes impossible; they would only exclude others.
                if place % self.alignment == 0:
                    found.append(Overlap(source, target, -place, exact=True))
        return found

    def _all_overlaps(self, kernels: Sequence[Kernel]) -> Iterator[Overlap]:
        """Yield the overlaps of all layers; all layers that compute rows of one node must allow them."""
        by_node: dict[Hashable, list[Sequence[Overlap]]] = {}
        for index, kernel in enumerate(kernels):
            band = self.planned[index].band
            by_node.setdefault(index if band is None else band.node, []).append(self.overlaps(index, kernel))
        for own in by_node.values():
            yield from own[0] if len(own) == 1 else _common(own)

    @cached_property
    def _homes_and_stages(self) -> Sequence[Overlap]:
        """Overlaps of home buffers with stages: all are allowed, because all rows are copied at once."""
        found: list[Overlap] = []
        for region in self.regions:
            for value in region.carried:
                home, stage = self.window_blocks[value], self.newest_blocks[value]
                found.append(Overlap(home, stage, -align(home.size, self.alignment)))
        return found

    def plan(
        self,
        kernels: Sequence[Kernel],
        calls: Sequence[KernelCall],
        *,
        thorough: bool = False,
    ) -> StreamMemory:
        """Plan the addresses of all blocks.

        Args:
            kernels, calls: kernels and calls of all layers.
            thorough: whether to search longer, see `plan_from_bound`.
        """
        scratch = {i: self._scratch_of(i, call.scratch) for i, call in enumerate(calls) if call.scratch}
        overlaps = [*self._all_overlaps(kernels), *self._homes_and_stages]
        problem = (*scratch.values(),), (*overlaps,), thorough
        if problem not in self._placed:
            self._placed[problem] = self._place([*scratch.values()], overlaps, thorough=thorough)
        return StreamMemory(self, scratch, self._placed[problem])

    def _scratch_of(self, index: int, size: int) -> StreamBlock:
        """Return the scratch memory of a layer's calls."""

        def find() -> StreamBlock:
            times = sum(1 << moment for moment in self.moments_of(index))
            return block(f"scratch of layer {index}", size, times)

        return self._remembered(("scratch", index, size), find)

    def _place(
        self, scratch: Sequence[StreamBlock], overlaps: Sequence[Overlap], *, thorough: bool
    ) -> ArenaPlan:
        blocks = [*self._tensors, *scratch]
        allowed = [*overlaps, *overlaps_in_time(blocks, self._occupied, overlaps)]
        least = busiest(blocks, self._occupied, overlaps, self.end + 1)
        bound = align(least, self.alignment) // self.alignment * ALIGNMENT

        def place(coarse: Sequence[Storage], leave: Sequence[Overlap], enough: int | None) -> ArenaPlan:
            return plan_from_bound(coarse, leave, bound, enough, thorough=thorough)

        return plan_coarsely(blocks, allowed, self.alignment, None, place)

    def least_need(self, kernels: Sequence[Kernel]) -> int:
        """Return a lower bound of the arena in bytes for these kernels, without scratch memory."""
        needs = (self.alive(index) - self._shared_by(index, kernel) for index, kernel in enumerate(kernels))
        return max(needs, default=0) * ALIGNMENT

    def least_need_before(self, kernels: Sequence[Kernel], fronts: Collection[Value]) -> int:
        """Return `least_need` of the layers before `fronts`, without `fronts` and their producers."""
        held = self.held_apart(fronts)
        needs = (
            int(held[[*each.moments]].max()) - self._shared_by(index, kernel)
            for index, (each, kernel) in enumerate(zip(self.planned, kernels, strict=True))
            if each.band is not None and each.band.node.output not in fronts
        )
        return max(needs, default=0) * ALIGNMENT

    def _shared_by(self, index: int, kernel: Kernel) -> int:
        """Return the units that a layer's result can share with its operands."""
        return self._remembered(
            ("shared", index, kernel), lambda: shared_in_call(self.overlaps(index, kernel))
        )

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Return the minimum arena size for the blocks alive in a layer's calls, in bytes."""
        shared = self._shared_by(index, kernel)
        return (self.alive(index) + units(call.scratch) - shared) * ALIGNMENT

    def need_in_any_order(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Return `need`, because the order of a stream is fixed."""
        return self.need(index, kernel, call)

    def reordered(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> None:
        """Return None, because the order of a stream is fixed."""
        del kernels, calls


def _common(found: Sequence[Sequence[Overlap]]) -> Iterator[Overlap]:
    """Yield the overlaps that all layers allow."""
    pairs = dict.fromkeys((each.source, each.target) for own in found for each in own)
    for source, target in pairs:
        each = [o for own in found for o in own if (o.source, o.target) == (source, target)]
        if len(each) < len(found):
            continue
        distance = max(o.distance for o in each)
        exact = {o.distance for o in each if o.exact}
        if not exact or exact == {distance}:
            yield Overlap(source, target, distance, exact=bool(exact))
