#ifndef ACME_DSP_H
#define ACME_DSP_H

#include <stdint.h>

/* output[i] = the larger of first[i] and second[i], at least low, at most high; 0 if all went well. */
int acme_max_s8(const int8_t *first, const int8_t *second, int8_t *output, int32_t count, int32_t low,
                int32_t high);

#endif
