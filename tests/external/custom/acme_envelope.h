#ifndef ACME_ENVELOPE_H
#define ACME_ENVELOPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest magnitude of each 8 of 32 samples, and the sum of the four. */
void acme_envelope(const int16_t *samples, int16_t *peaks, int32_t *sum);

#ifdef __cplusplus
}
#endif

#endif
