/* Sound to features, in integers: what log_mel.py computes in floating point.
 *
 * Sound comes in blocks of 20 ms, as the halves of a DMA buffer do. Each block gives one column: the energy of the
 * last 30 ms in 32 mel bands, in octaves, quantised as the network's input. The extractor keeps the last 49 columns. */

#ifndef LOG_MEL_H
#define LOG_MEL_H

#include <stdint.h>

#define LOG_MEL_RATE 16000 /* samples per second */
#define LOG_MEL_HOP 320    /* samples of a block */
#define LOG_MEL_WINDOW 480 /* samples that a column is computed from */
#define LOG_MEL_FFT 512    /* points of the transform */
#define LOG_MEL_BANDS 32   /* values of a column */
#define LOG_MEL_COLUMNS 49 /* columns that are kept */

typedef struct {
    int32_t re;
    int32_t im;
} log_mel_complex;

/* All of the extractor's memory. */
typedef struct {
    log_mel_complex spectrum[LOG_MEL_FFT / 2];      /* scratch */
    int16_t samples[LOG_MEL_WINDOW];                 /* the last ones */
    int8_t columns[LOG_MEL_COLUMNS][LOG_MEL_BANDS]; /* a ring */
    uint32_t oldest;                                  /* the ring's first column, which the next block replaces */
} log_mel_state;

/* Begins as after a second of silence. */
void log_mel_init(log_mel_state *state);

/* Takes the next LOG_MEL_HOP samples, and computes a column of them. */
void log_mel_push(log_mel_state *state, const int16_t *block);

/* The column of the last block: LOG_MEL_BANDS values. */
const int8_t *log_mel_newest(const log_mel_state *state);

/* Copies all columns to `input` [LOG_MEL_COLUMNS][LOG_MEL_BANDS], the oldest first. */
void log_mel_window(const log_mel_state *state, int8_t *input);

#endif
