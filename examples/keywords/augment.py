"""What surrounds a word: rooms, microphones, noise, other words; and the windows that the network sees."""

import numpy as np
from log_mel import COLUMNS, HOP, RATE
from scipy.signal import fftconvolve, lfilter, resample_poly
from speech import LABELS, SILENCE, UNKNOWN, to_int16

WINDOW = COLUMNS * HOP
GAP = RATE // 8  # samples of silence between words, at least


def noise(rng, length):
    """Noise between white and brown, sometimes with a hum: float64 [length] of power 1."""
    spectrum = np.fft.rfft(rng.normal(size=length))
    frequency = np.maximum(np.arange(len(spectrum)) * RATE / length, 40)
    result = np.fft.irfft(spectrum / frequency ** rng.uniform(0, 1), length)
    result /= result.std() + 1e-9
    if rng.random() < 0.2:
        pitch = rng.choice([50, 60, 100, 120]) * np.arange(1, 6)[:, np.newaxis]
        hum = np.sin(2 * np.pi * pitch * np.arange(length) / RATE + rng.uniform(0, 6.3, (5, 1)))
        result += rng.uniform(0.3, 3) * rng.random(5) @ hum
        result /= result.std()
    return result


def babble(rng, clips, length):
    """Several voices at once, too many to understand: float64 [length] of power 1."""
    result = np.zeros(length)
    for _ in range(8):
        samples = np.resize(clips[rng.integers(len(clips))].samples.astype(np.float64), length)
        result += np.roll(samples, rng.integers(length)) / (samples.std() + 1e-9)
    return result / result.std()


def spoken(rng, clip):
    """A clip, faster and higher or slower and lower, as of a smaller or larger person: float64 of peak 1."""
    samples = resample_poly(clip.samples.astype(np.float64), rng.integers(78, 124), 100)
    return samples / np.abs(samples).max()


def in_a_room(rng, samples):
    """With echoes that die away within 0.1 to 0.4 s, by a microphone that likes some frequencies better."""
    if rng.random() < 0.6:
        decay = np.exp(-6.9 * np.arange(RATE // 4) / (RATE * rng.uniform(0.1, 0.4)))
        echoes = decay * rng.normal(size=len(decay)) * rng.uniform(0.01, 0.12)
        echoes[0] = 1
        samples = fftconvolve(samples, echoes)[: len(samples)]
    if rng.random() < 0.6:
        samples = lfilter([1, rng.uniform(-0.6, 0.6)], [1, rng.uniform(-0.3, 0.3)], samples)
    return samples


def scene(rng, clip, clips):
    """A window in which `clip` is heard as a whole, sometimes with pieces of other words around it."""
    word = spoken(rng, clip)[: WINDOW - 800]
    begin = rng.integers(WINDOW - len(word) + 1)
    result = np.zeros(WINDOW)
    result[begin : begin + len(word)] = word
    before, behind = begin - GAP, begin + len(word) + GAP
    if before > 0 and rng.random() < 0.4:
        other = spoken(rng, clips[rng.integers(len(clips))])[-before:]
        result[before - len(other) : before] = other
    if behind < WINDOW and rng.random() < 0.4:
        other = spoken(rng, clips[rng.integers(len(clips))])[: WINDOW - behind]
        result[behind : behind + len(other)] = other
    return result


def pieces(rng, clips):
    """A window of two words of which nobody could tell either: the end of one, the beginning of another."""
    result = np.zeros(WINDOW)
    first, second = (spoken(rng, clips[rng.integers(len(clips))]) for _ in range(2))
    end = first[-int(len(first) * rng.uniform(0.1, 0.45)) :][:WINDOW]
    result[: len(end)] = end
    if rng.random() < 0.5:
        begin = second[: int(len(second) * rng.uniform(0.1, 0.45))][: WINDOW - len(end)]
        result[WINDOW - len(begin) :] = begin
    return result


def heard(rng, samples, clips, noises, loudness=(-34.0, 2.0)):
    """int16 [WINDOW]: `samples` of peak 1, in a room, in noise, at some distance. Loud ones are clipped."""
    samples = in_a_room(rng, samples)
    level = np.sqrt((samples**2).mean()) or 0.1
    if noises and rng.random() < 0.5:
        recording = noises[rng.integers(len(noises))].astype(np.float64)
        disturbance = np.roll(np.resize(recording, WINDOW), rng.integers(WINDOW))
        disturbance /= disturbance.std() + 1e-9
    else:
        disturbance = babble(rng, clips, WINDOW) if rng.random() < 0.15 else noise(rng, WINDOW)
    samples = samples + disturbance * level * 10 ** (-rng.uniform(6, 45) / 20)
    gain = 32768 * 10 ** (rng.uniform(*loudness) / 20)
    return to_int16(samples * gain + rng.normal(size=WINDOW) * rng.choice([0, 1, 8]))


def examples(rng, clips, others, noises=(), silences=0.12):
    """Windows int16 [n, WINDOW] and labels int64 [n]: one for each clip, and a share of silences and pieces.

    Args:
        others: clips to take what is around a word, and babble, from.
    """
    quiet = int(len(clips) * silences)
    windows = [heard(rng, scene(rng, clip, others), others, noises) for clip in clips]
    labels = [LABELS.index(clip.label) for clip in clips]
    for _ in range(quiet):
        windows.append(heard(rng, np.zeros(WINDOW), others, noises, (-60.0, -3.0)))
        labels.append(LABELS.index(SILENCE))
        windows.append(heard(rng, pieces(rng, others), others, noises))
        labels.append(LABELS.index(UNKNOWN))
    return np.stack(windows), np.array(labels)
