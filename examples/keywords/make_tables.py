"""Print log_mel_tables.h: the window, cosines, places of the mel bands and logarithms that log_mel.c reads.

python make_tables.py > log_mel_tables.h
"""

import numpy as np
from log_mel import BANDS, COLUMNS, FFT, FLOOR, HOP, RATE, WINDOW, mel_bins, mel_position, window

# Bits behind the point.
HANN_BITS = 31
COSINE_BITS = 30  # 1 is in the table
MEL_BITS = 14
LOG2_BITS = 16
LOG2_INDEX_BITS = 6


def fixed(real, bits):
    """Real numbers as integers with so many bits behind the point."""
    return np.rint(np.ldexp(real, bits)).astype(np.int64)


def array(declaration, values):
    """A C array, some ten values a line."""
    lines = [", ".join(map(str, values[i : i + 10])) for i in range(0, len(values), 10)]
    return f"static const {declaration}[{len(values)}] = {{\n    " + ",\n    ".join(lines) + "};\n"


def main():
    first, end = mel_bins()
    turn = 2 * np.pi * np.arange(FFT) / FFT
    steps = np.arange(2**LOG2_INDEX_BITS + 1) / 2**LOG2_INDEX_BITS
    print(f"""\
/* The constants of log_mel.c, by make_tables.py. */

#ifndef LOG_MEL_TABLES_H
#define LOG_MEL_TABLES_H

#include <stdint.h>

#if LOG_MEL_RATE != {RATE} || LOG_MEL_HOP != {HOP} || LOG_MEL_WINDOW != {WINDOW} || \\
    LOG_MEL_FFT != {FFT} || LOG_MEL_BANDS != {BANDS} || LOG_MEL_COLUMNS != {COLUMNS}
#error "log_mel.h and log_mel.py differ"
#endif

#define FLOOR_LOG2 {int(np.log2(FLOOR))}

/* The first half of a Hann window; the second is its mirror image. */
#define HANN_BITS {HANN_BITS}
{array("int32_t hann", fixed(window()[: WINDOW // 2], HANN_BITS))}
/* A whole turn. */
#define COSINE_BITS {COSINE_BITS}
{array("int32_t cosine", fixed(np.cos(turn), COSINE_BITS))}
/* Where bins MEL_FIRST_BIN and on lie among the bands: at 5.25, a quarter on the way from the peak of the
 * fifth band to that of the sixth. */
#define MEL_BITS {MEL_BITS}
#define MEL_FIRST_BIN {first}
#define MEL_END_BIN {end}
{array("uint32_t mel_position", fixed(mel_position()[first:end], MEL_BITS))}
/* log2(1 + i / {2**LOG2_INDEX_BITS}) */
#define LOG2_INDEX_BITS {LOG2_INDEX_BITS}
{array("uint32_t log2_table", fixed(np.log2(1 + steps), LOG2_BITS))}
#endif""")


if __name__ == "__main__":
    main()
