/* From the scores of the network's runs to keywords: a word is heard in several runs one after the other. */

#ifndef DETECTOR_H
#define DETECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "keywords.h"

#define DETECTOR_RUNS 3       /* over which scores are averaged */
#define DETECTOR_THRESHOLD 70 /* per cent that the average must reach */
#define DETECTOR_PAUSE 6      /* runs behind a keyword in which no other is detected */

typedef struct {
    int8_t scores[DETECTOR_RUNS][KEYWORDS_OUTPUT_0_LENGTH]; /* a ring */
    uint32_t oldest;
    uint32_t pause; /* runs that are left of it */
} detector_state;

void detector_init(detector_state *state);

/* Takes the network's output; true if a keyword ends here: which, and its average score in per cent. */
bool detector_push(detector_state *state, const int8_t *scores, uint32_t *label, uint32_t *percent);

#endif
