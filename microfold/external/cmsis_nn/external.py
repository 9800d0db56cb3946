"""External code generator ``cmsis-nn``."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.external import single
from microfold.external.cmsis_nn.add import ElementwiseAddS8
from microfold.external.cmsis_nn.convolution import ConvolveS8, DepthwiseConvS8
from microfold.external.cmsis_nn.fully_connected import FullyConnectedS8
from microfold.external.cmsis_nn.pool2d import AveragePoolS8, MaxPoolS8
from microfold.external.cmsis_nn.softmax import SoftmaxS8
from microfold.external.external import External, ExternalRegion
from microfold.ir.pattern_table import PatternEntry
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel

_KERNELS: dict[str, Kernel] = {
    kernel.op.name: kernel
    for kernel in (
        ConvolveS8(),
        DepthwiseConvS8(),
        FullyConnectedS8(),
        AveragePoolS8(),
        MaxPoolS8(),
        ElementwiseAddS8(),
        SoftmaxS8(),
    )
}


class CmsisNN(External):
    """Code generator that calls CMSIS-NN for int8 operators, each with the clips after it."""

    name = "cmsis-nn"

    @property
    def patterns(self) -> Sequence[PatternEntry]:
        return [single.entry(name, kernel, clips=name != "softmax") for name, kernel in _KERNELS.items()]

    def lower(self, region: ExternalRegion) -> KernelCall:
        return _KERNELS[region.composite].lower(region.layer())
