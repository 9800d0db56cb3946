#include "acme_dsp.h"

int acme_max_s8(const int8_t *first, const int8_t *second, int8_t *output, int32_t count, int32_t low,
                int32_t high)
{
    for (int32_t i = 0; i < count; i++) {
        const int32_t larger = first[i] > second[i] ? first[i] : second[i];

        output[i] = (int8_t)(larger < low ? low : larger > high ? high : larger);
    }
    return 0;
}
