#include "acme_envelope.h"

void acme_envelope(const int16_t *samples, int16_t *peaks, int32_t *sum)
{
    *sum = 0;
    for (int32_t i = 0; i < 4; i++) {
        int32_t peak = 0;

        for (int32_t k = 0; k < 8; k++) {
            const int32_t sample = *samples++;
            const int32_t magnitude = sample < 0 ? -sample : sample;

            peak = magnitude > peak ? magnitude : peak;
        }
        peaks[i] = (int16_t)(peak > 32767 ? 32767 : peak);
        *sum += peaks[i];
    }
}
