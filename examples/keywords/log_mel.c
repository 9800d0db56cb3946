/* Right shifts of negative numbers are arithmetic here, as with every compiler for these cores. */

#include "log_mel.h"

#include <string.h>

#include "log_mel_tables.h"
#include "keywords.h"

#if KEYWORDS_INPUT_0_LENGTH != LOG_MEL_COLUMNS * LOG_MEL_BANDS
#error "the network's input is not a window of these features"
#endif

#define HALF (LOG_MEL_FFT / 2)

/* Bits behind the point. A block is amplified by 2^gain as far as its loudest sample allows, so the numbers of its
 * spectrum have SPECTRUM_BITS + gain. The window sums to 240: no sum of a spectrum reaches 2^15 * 240 * 2^8 < 2^31.
 *
 * Powers have twice as many, less POWER_SHIFT. By Parseval's theorem all of them together stay below
 * 256 * sum of (sample * window)^2 < 2^(8 + 30 + 7.5 + 16 - POWER_SHIFT), and below 2^64 with weights of 14 bits. */
#define SPECTRUM_BITS 8
#define POWER_SHIFT 12
#define LOG_BITS 16

/* What an octave is in steps of the network's input, times 2^16; the compiler computes it. */
static const uint32_t steps_per_octave = (uint32_t)(65536.0 / (double)KEYWORDS_INPUT_0_SCALE + 0.5);

/* How many bits a number takes: 0 for 0. */
static uint32_t bit_length(uint64_t value)
{
    uint32_t length = 0;

    for (uint32_t step = 32; step > 0; step /= 2) {
        if (value >> step != 0) {
            value >>= step;
            length += step;
        }
    }
    return length + (uint32_t)value;
}

/* By how many doublings the samples may be amplified. */
static uint32_t headroom(const int16_t *samples)
{
    uint32_t used = 0; /* the bits that any sample needs, but for its sign */

    for (uint32_t i = 0; i < LOG_MEL_WINDOW; i++) {
        const int32_t sample = samples[i];

        used |= (uint32_t)(sample < 0 ? -1 - sample : sample);
    }
    return 15 - bit_length(used);
}

/* Where number i of the transform's input stands: its four digits of base 4 the other way round. */
static uint32_t reversed(uint32_t i)
{
    return (i & 0x03) << 6 | (i & 0x0C) << 2 | (i & 0x30) >> 2 | (i & 0xC0) >> 6;
}

/* The windowed samples, amplified, in the order that transform() takes: even ones real, odd ones imaginary. */
static void apply_window(log_mel_complex *spectrum, const int16_t *samples, uint32_t gain)
{
    const int32_t factor = (int32_t)1 << gain;

    memset(spectrum, 0, HALF * sizeof *spectrum);
    for (uint32_t i = 0; i < LOG_MEL_WINDOW; i++) {
        const int32_t weight = hann[i < LOG_MEL_WINDOW / 2 ? i : LOG_MEL_WINDOW - 1 - i];
        const int64_t product = (int64_t)(samples[i] * factor) * weight;
        const int32_t value = (int32_t)((product + ((int64_t)1 << (HANN_BITS - SPECTRUM_BITS - 1))) >>
                                        (HANN_BITS - SPECTRUM_BITS));
        log_mel_complex *const pair = &spectrum[reversed(i / 2)];

        if (i % 2 == 0) {
            pair->re = value;
        } else {
            pair->im = value;
        }
    }
}

/* exp(-2 pi i index / LOG_MEL_FFT) */
static log_mel_complex twiddle(uint32_t index)
{
    const log_mel_complex result = {cosine[index % LOG_MEL_FFT],
                                     cosine[(index + LOG_MEL_FFT / 4) % LOG_MEL_FFT]};
    return result;
}

static int32_t rounded(int64_t product)
{
    return (int32_t)((product + ((int64_t)1 << (COSINE_BITS - 1))) >> COSINE_BITS);
}

static log_mel_complex rotate(log_mel_complex a, log_mel_complex w)
{
    const log_mel_complex result = {rounded((int64_t)a.re * w.re - (int64_t)a.im * w.im),
                                     rounded((int64_t)a.re * w.im + (int64_t)a.im * w.re)};
    return result;
}

static log_mel_complex add(log_mel_complex a, log_mel_complex b)
{
    const log_mel_complex result = {a.re + b.re, a.im + b.im};
    return result;
}

static log_mel_complex subtract(log_mel_complex a, log_mel_complex b)
{
    const log_mel_complex result = {a.re - b.re, a.im - b.im};
    return result;
}

/* A complex Fourier transform of 256 points, in place, by radix 4: four transforms of `size` become one of 4 size. */
static void transform(log_mel_complex *spectrum)
{
    for (uint32_t size = 1; size < HALF; size *= 4) {
        for (uint32_t k = 0; k < size; k++) {
            const uint32_t step = k * (LOG_MEL_FFT / 4) / size;
            const log_mel_complex w1 = twiddle(step);
            const log_mel_complex w2 = twiddle(2 * step);
            const log_mel_complex w3 = twiddle(3 * step);

            for (uint32_t i = k; i < HALF; i += 4 * size) {
                log_mel_complex *const p = &spectrum[i];
                const log_mel_complex a = p[0];
                const log_mel_complex b = k == 0 ? p[size] : rotate(p[size], w1);
                const log_mel_complex c = k == 0 ? p[2 * size] : rotate(p[2 * size], w2);
                const log_mel_complex d = k == 0 ? p[3 * size] : rotate(p[3 * size], w3);
                const log_mel_complex even = add(a, c);
                const log_mel_complex odd = add(b, d);
                const log_mel_complex even_turned = subtract(a, c);
                const log_mel_complex difference = subtract(b, d);
                const log_mel_complex odd_turned = {difference.im, -difference.re}; /* by -i */

                p[0] = add(even, odd);
                p[size] = add(even_turned, odd_turned);
                p[2 * size] = subtract(even, odd);
                p[3 * size] = subtract(even_turned, odd_turned);
            }
        }
    }
}

/* The power of bin k of the real signal's spectrum, from the complex one of its pairs of samples. */
static uint64_t power(const log_mel_complex *spectrum, uint32_t k)
{
    const log_mel_complex z = spectrum[k];
    const log_mel_complex mirrored = spectrum[HALF - k];
    const log_mel_complex w = twiddle(k);
    /* Twice the spectra of the even and of the odd samples, each at most half of the sum over all. */
    const log_mel_complex even = {z.re + mirrored.re, z.im - mirrored.im};
    const log_mel_complex odd = {z.im + mirrored.im, mirrored.re - z.re};
    const int64_t one = (int64_t)1 << COSINE_BITS; /* and, once the sum is there, half a unit of it */
    const int64_t twice_re = even.re * one + (int64_t)odd.re * w.re - (int64_t)odd.im * w.im;
    const int64_t twice_im = even.im * one + (int64_t)odd.re * w.im + (int64_t)odd.im * w.re;
    const int32_t re = (int32_t)((twice_re + one) >> (COSINE_BITS + 1));
    const int32_t im = (int32_t)((twice_im + one) >> (COSINE_BITS + 1));

    return ((uint64_t)((int64_t)re * re) + (uint64_t)((int64_t)im * im) + (1u << (POWER_SHIFT - 1))) >> POWER_SHIFT;
}

/* The logarithm to base 2 of a number that is not 0, with LOG_BITS behind the point. */
static uint32_t log2_of(uint64_t value)
{
    const uint32_t exponent = bit_length(value) - 1;
    const uint32_t mantissa = (uint32_t)(value << (63 - exponent) >> 32) << 1; /* 0 ... 1, times 2^32 */
    const uint32_t i = mantissa >> (32 - LOG2_INDEX_BITS);
    const uint32_t rest = mantissa << LOG2_INDEX_BITS >> 16;

    return (exponent << LOG_BITS) + log2_table[i] + ((log2_table[i + 1] - log2_table[i]) * rest >> 16);
}

static int8_t quantize(uint32_t octaves)
{
    const uint64_t steps = (uint64_t)octaves * steps_per_octave;
    const int32_t value = (int32_t)((steps + ((uint64_t)1 << 31)) >> 32) + KEYWORDS_INPUT_0_ZERO_POINT;

    return (int8_t)(value > 127 ? 127 : value);
}

/* The energy of the bands, and from that the column. */
static void fill_column(int8_t *column, const log_mel_complex *spectrum, uint32_t gain)
{
    const uint32_t floor_exponent = 2 * (SPECTRUM_BITS + gain) - POWER_SHIFT + MEL_BITS + FLOOR_LOG2;
    const uint64_t one = (uint64_t)1 << MEL_BITS;
    uint64_t energy[LOG_MEL_BANDS + 2] = {0}; /* what is beyond the first and the last band, too */

    for (uint32_t k = MEL_FIRST_BIN; k < MEL_END_BIN; k++) {
        const uint32_t position = mel_position[k - MEL_FIRST_BIN];
        const uint64_t all = power(spectrum, k);
        const uint64_t upper = all * (position % one);

        energy[position >> MEL_BITS] += all * one - upper;
        energy[(position >> MEL_BITS) + 1] += upper;
    }
    for (uint32_t band = 0; band < LOG_MEL_BANDS; band++) {
        const uint64_t sum = energy[band + 1] + ((uint64_t)1 << floor_exponent);

        column[band] = quantize(log2_of(sum) - (floor_exponent << LOG_BITS));
    }
}

void log_mel_init(log_mel_state *state)
{
    memset(state, 0, sizeof *state);
    memset(state->columns, KEYWORDS_INPUT_0_ZERO_POINT, sizeof state->columns);
}

void log_mel_push(log_mel_state *state, const int16_t *block)
{
    const uint32_t kept = LOG_MEL_WINDOW - LOG_MEL_HOP;

    memcpy(state->samples, &state->samples[LOG_MEL_HOP], kept * sizeof *block);
    memcpy(&state->samples[kept], block, LOG_MEL_HOP * sizeof *block);

    const uint32_t gain = headroom(state->samples);

    apply_window(state->spectrum, state->samples, gain);
    transform(state->spectrum);
    fill_column(state->columns[state->oldest], state->spectrum, gain);
    state->oldest = (state->oldest + 1) % LOG_MEL_COLUMNS;
}

const int8_t *log_mel_newest(const log_mel_state *state)
{
    return state->columns[(state->oldest + LOG_MEL_COLUMNS - 1) % LOG_MEL_COLUMNS];
}

void log_mel_window(const log_mel_state *state, int8_t *input)
{
    const uint32_t split = state->oldest * LOG_MEL_BANDS;

    memcpy(input, state->columns[state->oldest], sizeof state->columns - split);
    memcpy(input + sizeof state->columns - split, state->columns, split);
}
