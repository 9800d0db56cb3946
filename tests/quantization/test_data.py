"""Sample data: what is read, and what is refused with all problems."""

from __future__ import annotations

import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest

from microfold.errors import InputError
from microfold.host.ports import Port
from microfold.ir.types import Array, DType, TensorType
from microfold.quantization.data import fit_array, open_data
from microfold.quantization.preprocessing import Preprocessing
from tests.needs import need_modules

KNOWN = Preprocessing((0.0,), (255.0,), source="the model's metadata")
RNG = np.random.default_rng(3)


def port(*shape: int, name: str = "x", dtype: DType = DType.FLOAT32) -> Port:
    return Port(name, TensorType(dtype, shape))


def read(path: Path, *ports: Port, rule: Preprocessing | None = None) -> tuple[Array, ...]:
    data = open_data(path, ports, [rule or Preprocessing()] * len(ports))
    return data.read(range(data.count))


def refusal(path: Path, *ports: Port, rule: Preprocessing | None = None) -> str:
    with pytest.raises(InputError) as error:
        read(path, *ports, rule=rule)
    return str(error.value)


@pytest.mark.parametrize("shape", [(5, 1, 2, 3), (5, 2, 3), (5, 6)])
def test_samples_may_lack_the_first_axis_or_be_flat(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = RNG.normal(size=shape)
    np.save(tmp_path / "x.npy", values)
    (found,) = read(tmp_path / "x.npy", port(1, 2, 3))
    assert (found.shape, found.dtype) == ((5, 1, 2, 3), np.float32)
    np.testing.assert_array_equal(found.ravel(), values.astype(np.float32).ravel())


def test_archives_are_read_by_name_or_in_order(tmp_path: Path) -> None:
    first, second = RNG.normal(size=(4, 2)).astype(np.float32), RNG.normal(size=(4, 3)).astype(np.float32)
    np.savez(tmp_path / "named.npz", b=second, a=first)
    np.savez(tmp_path / "ordered.npz", first, second)
    for name in ("named.npz", "ordered.npz"):
        found = read(tmp_path / name, port(1, 2, name="a"), port(1, 3, name="b"))
        np.testing.assert_array_equal(found[0].reshape(4, 2), first)
        np.testing.assert_array_equal(found[1].reshape(4, 3), second)


def test_all_problems_of_an_archive_are_listed(tmp_path: Path) -> None:
    bad = np.array([[1, np.nan], [2, 3]], np.float32)
    np.savez(tmp_path / "x.npz", a=np.zeros((4, 5), np.float32), b=bad, c=np.full((2, 2), "t"))
    message = refusal(tmp_path / "x.npz", *(port(1, 2, name=name) for name in "abc"))
    assert "'a': the shape must be [N,1,2]; it is [4, 5]" in message
    assert "'b': all values must be finite; 1 are not, the first one in sample 0" in message
    assert "'c': the type must be a number; it is <U1" in message


def test_the_numbers_of_samples_must_be_equal(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=RNG.normal(size=(4, 2)), b=RNG.normal(size=(3, 2)))
    assert "same number of samples; got [4, 3]" in refusal(
        tmp_path / "x.npz", port(1, 2, name="a"), port(1, 2, name="b")
    )


def test_integers_need_a_conversion() -> None:
    pixels = np.array([[0, 255], [10, 20]], np.uint8)
    assert "--mean and --std" in fit_array(pixels, port(1, 2), Preprocessing())[1][0]
    found, problems = fit_array(pixels, port(1, 2), KNOWN)
    assert problems == []
    assert found is not None
    np.testing.assert_array_equal(found[0, 0], [0, 1])
    # Floats are taken for inputs unless options say otherwise.
    floats = pixels.astype(np.float32)
    unchanged, _ = fit_array(floats, port(1, 2), KNOWN)
    assert unchanged is not None
    assert unchanged.max() == 255


def test_values_must_be_in_the_stated_range_and_differ() -> None:
    limited = Preprocessing(low=(-1.0,), high=(1.0,))
    assert "between -1.0 and 1.0" in fit_array(np.array([[0.0, 2.0]]), port(1, 2), limited)[1][0]
    assert "all are 3" in fit_array(np.full((4, 2), 3.0), port(1, 2), Preprocessing())[1][0]


def test_integer_inputs_take_their_type_only() -> None:
    ids = port(1, 2, dtype=DType.INT32)
    assert fit_array(np.array([[1, 2]], np.int32), ids, Preprocessing())[1] == []
    assert "must be int32; it is int64" in fit_array(np.array([[1, 2]], np.int64), ids, Preprocessing())[1][0]


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("left,right\n1,2\n3.5,-4\n\n", encoding="utf-8")
    (found,) = read(tmp_path / "x.csv", port(1, 2))
    np.testing.assert_array_equal(found.reshape(2, 2), [[1, 2], [3.5, -4]])
    (tmp_path / "x.csv").write_text("1,2\n3,y\n5\n", encoding="utf-8")
    message = refusal(tmp_path / "x.csv", port(1, 2))
    assert "line 2, column 2 must be a number; it is 'y'" in message
    assert "line 3 must have 2 numbers, as the first one has; it has 1" in message


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x00" * 100])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_damaged_files_are_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    assert "is not a readable" in refusal(path, port(1, 2))


def test_archives_with_huge_arrays_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microfold.quantization.data.LARGEST_INPUT", 1000)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", b"\0" * 1001)
    assert "arrays may have 1,000 bytes" in refusal(tmp_path / "x.npz", port(1, 2))


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert "--data must be .npy, .npz, .csv" in refusal(tmp_path / "x.mat", port(1, 2))
    assert "must have images or .wav files; " in refusal(tmp_path, port(1, 2))


def write_wav(path: Path, values: Array, width: int = 2, rate: int = 16000, channels: int = 1) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        limit = 1 << (8 * width)
        shifted = values + 128 if width == 1 else values % limit
        file.writeframes(b"".join(int(v).to_bytes(width, "little") for v in shifted.ravel()))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sound_is_cut_into_windows(tmp_path: Path, width: int) -> None:
    full = 1 << (8 * width - 1)
    write_wav(
        tmp_path / "b.wav", np.array([0, full // 2, -full, 0, full // 4, full // 2, 1], np.int64), width
    )
    (found,) = read(tmp_path, port(1, 3))
    np.testing.assert_allclose(found.reshape(2, 3), [[0, 0.5, -1], [0, 0.25, 0.5]])


def test_problems_of_sound_are_listed(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", np.arange(8))
    write_wav(tmp_path / "b.wav", np.arange(8), rate=8000)
    write_wav(tmp_path / "c.wav", np.arange(8), channels=2)
    write_wav(tmp_path / "d.wav", np.arange(3))
    (tmp_path / "e.wav").write_bytes(b"RIFF")
    message = refusal(tmp_path, port(1, 4))
    assert "b.wav must have 16000 samples per second, as a.wav; it has 8000" in message
    assert "c.wav must have one channel; it has 2" in message
    assert "d.wav must have 4 sound samples, as the input; it has 3" in message
    assert "e.wav must be a .wav file" in message
    assert "compute the features" in refusal(tmp_path, port(1, 49, 10, 1))


def write_pgm(path: Path, pixels: Array) -> None:
    height, width = pixels.shape
    path.write_bytes(f"P5 {width} {height} 255\n".encode() + pixels.astype(np.uint8).tobytes())


def test_images(tmp_path: Path) -> None:
    need_modules("PIL")
    (tmp_path / "cat").mkdir()
    write_pgm(tmp_path / "cat" / "1.pgm", np.full((4, 4), 255))
    write_pgm(tmp_path / "2.pgm", np.zeros((2, 8)))
    for channels in (1, 3):
        (found,) = read(tmp_path, port(1, 2, 2, channels), rule=KNOWN)
        assert found.shape == (2, 1, 2, 2, channels)
        assert sorted(float(each.mean()) for each in found) == [0, 1]


def test_problems_of_images_are_listed(tmp_path: Path) -> None:
    need_modules("PIL")
    write_pgm(tmp_path / "1.pgm", np.zeros((2, 2)))
    for name in ("2.png", "3.png"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n")
    message = refusal(tmp_path, port(1, 2, 2, 1), rule=KNOWN)
    assert "2.png must be a readable image" in message
    assert "3.png must be a readable image" in message
    message = refusal(tmp_path, port(1, 640))
    assert "images fit an input float32[1,height,width,channels]" in message
    assert "add --mean and --std" in message
