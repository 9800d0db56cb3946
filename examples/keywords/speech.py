"""Speech to train with: words as espeak-ng and flite say them, and recordings of one's own.

Both programs are packages of Debian (apt install espeak-ng flite). A clip is one word, without the silence
around it.
"""

import subprocess
import tempfile
import wave
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import gcd
from pathlib import Path

import numpy as np
from log_mel import RATE
from scipy.signal import resample_poly


def _words(text):
    return text.split()


KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
SILENCE, UNKNOWN = "silence", "unknown"
LABELS = (SILENCE, UNKNOWN, *KEYWORDS)
OTHER_WORDS = _words("""
    zero one two three four five six seven eight nine bed bird cat dog happy house tree wow backward
    forward follow learn visual water table music light window hello computer yet guess yesterday nose now
    gown town dawn cup pup step shop top goal gold ghost awful often own in and lift loft bright write
    leaf late note open close play pause the a of to is it that was for with they have this from word what
    some we can out other were all there when use your how said each she which do their time will about if
    would make like him into has look more day could come did number sound most people over know-how who
    oil sit find long down-town upper offer onion stopping going
""")

ACCENTS = ("en-us", "en-gb", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-gb-scotland", "en-029")
VARIANTS = _words("""
    adam Alex Alicia Andrea Andy Annie antonio aunty belinda benjamin boris caleb david Denis Diogo ed
    edward edward2 Gene Gene2 gustave announcer Henrique Hugo iven iven2 iven3 Jacky john kaukovalta Lee
    linda marcelo Marco Mario max Michael michel miguel Mike Nguyen pablo paul pedro quincy rob robert
    steph steph2 steph3 zac anika grandpa grandma klatt klatt2 klatt3 klatt4 m1 m2 m3 m4 m5 m6 m7 m8 f1 f2
    f3 f4 f5 norbert sandro shelby travis victor
""")
# Never in training: one of the voices made of a person's recordings, and every seventh of the others.
HELD_OUT_VOICES = ("rms",)
HELD_OUT_VARIANTS = VARIANTS[::7]
FLITE_VOICES = ("kal16", "awb", "rms", "slt")


@dataclass(frozen=True)
class Clip:
    """One word.

    Attributes:
        samples: int16 [n] at 16 kHz.
        group: where it comes from: "espeak-ng", "flite", or "recorded".
        held_out: not to train with.
    """

    word: str
    samples: np.ndarray
    group: str
    held_out: bool

    @property
    def label(self):
        return self.word if self.word in KEYWORDS else UNKNOWN


def read_wav(file):
    """The first channel of a 16-bit WAV, as int16 at 16 kHz."""
    with wave.open(str(file)) as source:
        if source.getsampwidth() != 2:
            raise SystemExit(f"{file}: samples must have 16 bits; they have {8 * source.getsampwidth()}")
        samples = np.frombuffer(source.readframes(source.getnframes()), "<i2")[:: source.getnchannels()]
        return resampled(samples, source.getframerate(), RATE)


def write_wav(file, samples):
    """int16 samples as a WAV of 16 kHz."""
    with wave.open(str(file), "wb") as target:
        target.setnchannels(1)
        target.setsampwidth(2)
        target.setframerate(RATE)
        target.writeframes(samples.astype("<i2").tobytes())


def resampled(samples, rate, new_rate):
    if rate == new_rate:
        return samples
    divisor = gcd(rate, new_rate)
    return to_int16(resample_poly(samples.astype(np.float64), new_rate // divisor, rate // divisor))


def to_int16(samples):
    return np.clip(np.rint(samples), -32768, 32767).astype(np.int16)


def trimmed(samples):
    """Without the silence at both ends: what is 40 dB below the loudest 10 ms."""
    blocks = samples[: len(samples) // 160 * 160].astype(np.float64).reshape(-1, 160)
    level = np.sqrt((blocks**2).mean(axis=1))
    loud = np.flatnonzero(level > level.max() / 100)
    return samples[loud[0] * 160 : (loud[-1] + 1) * 160]


# ---- the synthesizers --------------------------------------------------------------------------------------


def say(command):
    """What a synthesizer says that writes to the file which the command's last argument names."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "word.wav")
        subprocess.run([*command, str(file)], check=True, stdin=subprocess.DEVNULL)
        return read_wav(file)


def say_espeak(text, accent, variant, speed, pitch):
    voice = f"{accent}+{variant}"
    return say(["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), text, "-w"])


def say_flite(text, voice, stretch):
    return say(["flite", "-voice", voice, "--setf", f"duration_stretch={stretch}", "-t", text, "-o"])


def synthesized(rng, espeak_each=180, flite_each=20, others=4):
    """Clips of all keywords and of other words.

    Args:
        espeak_each: clips of each keyword by espeak-ng, each of another accent, variant, speed and pitch.
        flite_each: clips of each keyword by each of flite's voices, at as many speeds.
        others: clips of each other word by espeak-ng; each of flite's voices says it once.
    """
    jobs = []
    for word in (*KEYWORDS, *OTHER_WORDS):
        is_keyword = word in KEYWORDS
        for _ in range(espeak_each if is_keyword else others):
            variant = str(rng.choice(VARIANTS))
            voice = (
                str(rng.choice(ACCENTS)),
                variant,
                int(rng.integers(110, 210)),
                int(rng.integers(25, 75)),
            )
            jobs.append((word, say_espeak, voice, "espeak-ng", variant in HELD_OUT_VARIANTS))
        for voice in FLITE_VOICES:
            for stretch in np.linspace(0.8, 1.4, flite_each) if is_keyword else rng.uniform(0.8, 1.4, 1):
                jobs.append(
                    (word, say_flite, (voice, round(float(stretch), 2)), "flite", voice in HELD_OUT_VOICES)
                )
    with ThreadPoolExecutor(2) as pool:
        spoken = pool.map(lambda job: job[1](job[0].replace("-", " "), *job[2]), jobs)
        return [
            Clip(word, trimmed(samples), group, held_out)
            for (word, _, _, group, held_out), samples in zip(jobs, spoken, strict=True)
        ]


def recorded(folder):
    """Clips of a folder with a folder per word, as Speech Commands has it; and its background noise, if any.

    File names begin with the speaker and an underscore; a tenth of the speakers is held out.
    """
    clips, noises = [], []
    for file in sorted(Path(folder).glob("*/*.wav")):
        samples = read_wav(file)
        if file.parent.name.startswith("_"):
            noises.append(samples)
        elif samples.any():
            held_out = sum(file.name.split("_")[0].encode()) % 10 == 0
            clips.append(Clip(file.parent.name, trimmed(samples), "recorded", held_out))
    if not clips:
        raise SystemExit(
            f"{folder}: there must be a folder for each word with WAV files in it; there is none"
        )
    return clips, noises
