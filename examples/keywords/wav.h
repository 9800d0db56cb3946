/* Reads WAV files of 16-bit PCM, mono, 16 kHz; refuses others, and says why. */

#ifndef WAV_H
#define WAV_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    FILE *file;
    uint32_t left;     /* bytes of sound that are still to be read */
    char problem[160]; /* why it could not be opened */
} wav_reader;

/* False: see `problem`; nothing is open then. */
bool wav_open(wav_reader *wav, const char *name);

/* Reads the next samples; how many there were, which is fewer than `count` at the end only. */
uint32_t wav_read(wav_reader *wav, int16_t *samples, uint32_t count);

void wav_close(wav_reader *wav);

#endif
