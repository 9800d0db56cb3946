"""Convert a PyTorch module to .tflite: float32, float32 with channels last, and int8; also to ONNX.

Usage: python pytorch_to_tflite.py FOLDER

Packages: requirements-pytorch.txt. The network has random weights and has the size of the keyword spotter of
MLPerf Tiny.
"""

from __future__ import annotations

import sys
from pathlib import Path

import litert_torch
import torch
from litert_torch.quantize.pt2e_quantizer import PT2EQuantizer, get_symmetric_quantization_config
from litert_torch.quantize.quant_config import QuantConfig
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

CALIBRATION_RUNS = 16  # use some hundred samples of your training data instead


class Network(torch.nn.Module):
    """DS-CNN for features of 49 x 10."""

    def __init__(self) -> None:
        super().__init__()

        def layer(conv: torch.nn.Module) -> list[torch.nn.Module]:
            return [conv, torch.nn.BatchNorm2d(64), torch.nn.ReLU()]

        layers = layer(torch.nn.Conv2d(1, 64, (10, 4), stride=2, padding=(4, 1)))
        for _ in range(4):
            layers += layer(torch.nn.Conv2d(64, 64, 3, padding=1, groups=64))
            layers += layer(torch.nn.Conv2d(64, 64, 1))
        self.features = torch.nn.Sequential(*layers)
        self.classes = torch.nn.Linear(64, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.features(x).mean((2, 3)))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    # eval(): batch normalisation uses its statistics, and the converter folds it into the convolution.
    module = Network().eval()
    sample = torch.randn(1, 1, 49, 10)

    litert_torch.convert(module, (sample,)).export(str(folder / "pytorch_f32.tflite"))

    # The input of this model is [1, 49, 10, 1], as cameras and feature extractors write it.
    last = litert_torch.to_channel_last_io(module, args=[0])
    nhwc = sample.permute(0, 2, 3, 1).contiguous()
    litert_torch.convert(last, (nhwc,)).export(str(folder / "pytorch_nhwc_f32.tflite"))

    # is_dynamic=False: otherwise only the weights become int8.
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=False)
    quantizer = PT2EQuantizer().set_global(config)
    prepared = prepare_pt2e(torch.export.export(module, (sample,)).module(), quantizer)
    for _ in range(CALIBRATION_RUNS):
        prepared(torch.randn(1, 1, 49, 10))
    quantized = convert_pt2e(prepared, fold_quantize=False)
    converted = litert_torch.convert(quantized, (sample,), quant_config=QuantConfig(pt2e_quantizer=quantizer))
    converted.export(str(folder / "pytorch_int8.tflite"))

    torch.onnx.export(module, (sample,), str(folder / "pytorch.onnx"), dynamo=False)


if __name__ == "__main__":
    main()
