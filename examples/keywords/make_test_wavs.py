"""Make test/*.wav: words of voices that are not trained with, in some noise (apt install espeak-ng flite).

python make_test_wavs.py
"""

from pathlib import Path

import numpy as np
from log_mel import RATE
from speech import HELD_OUT_VARIANTS, HELD_OUT_VOICES, say_espeak, say_flite, to_int16, trimmed, write_wav

HERE = Path(__file__).resolve().parent
PEAK = 12000


def sentence(rng, words, noise):
    """int16 samples: the words, with pauses around them, in white noise of this level (rms)."""
    pause = np.zeros(RATE * 30 // 100)
    parts = [pause]
    for word in words:
        parts += [trimmed(word) * (PEAK / np.abs(word).max()), pause]
    samples = np.concatenate(parts)
    return to_int16(samples + noise * rng.normal(size=len(samples)))


def main():
    rng = np.random.default_rng(1)
    flite = [say_flite(word, HELD_OUT_VOICES[0], 1.1) for word in ("yes", "seven", "left", "go")]
    espeak = [
        say_espeak(word, "en-us", HELD_OUT_VARIANTS[3], 150, 50) for word in ("stop", "up", "music", "right")
    ]
    others = [say_flite(word, HELD_OUT_VOICES[0], 1.0) for word in ("water", "five")]
    for name, words, noise in (("flite", flite, 20), ("espeak", espeak, 150), ("others", others, 60)):
        write_wav(HERE / "test" / f"{name}.wav", sentence(rng, words, noise))


if __name__ == "__main__":
    main()
