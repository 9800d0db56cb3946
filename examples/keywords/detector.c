#include "detector.h"

#include <string.h>

#define FIRST_KEYWORD 2 /* of labels.txt; silence and unknown words are before it */
#define FULL_SCORE (256 * DETECTOR_RUNS)

void detector_init(detector_state *state)
{
    memset(state, 0, sizeof *state);
    memset(state->scores, KEYWORDS_OUTPUT_0_ZERO_POINT, sizeof state->scores);
}

bool detector_push(detector_state *state, const int8_t *scores, uint32_t *label, uint32_t *percent)
{
    uint32_t best = 0;

    memcpy(state->scores[state->oldest], scores, sizeof state->scores[0]);
    state->oldest = (state->oldest + 1) % DETECTOR_RUNS;
    for (uint32_t i = FIRST_KEYWORD; i < KEYWORDS_OUTPUT_0_LENGTH; i++) {
        uint32_t sum = 0;

        for (uint32_t run = 0; run < DETECTOR_RUNS; run++) {
            sum += (uint32_t)(state->scores[run][i] - KEYWORDS_OUTPUT_0_ZERO_POINT);
        }
        if (sum > best) {
            best = sum;
            *label = i;
        }
    }
    *percent = (100 * best + FULL_SCORE / 2) / FULL_SCORE;
    if (state->pause > 0) {
        state->pause--;
        return false;
    }
    if (*percent < DETECTOR_THRESHOLD) {
        return false;
    }
    state->pause = DETECTOR_PAUSE;
    return true;
}
