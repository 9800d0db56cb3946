/* Measures one column of features and one run of the network, on QEMU's mps2-an386: `make count`. On a
 * board, read DWT->CYCCNT instead. */

#include <stdio.h>

#include "log_mel.h"
#include "keywords.h"

/* A counter of the board's at 25 MHz. Under -icount shift=7, each instruction takes 128 ns. */
#define TICKS (*(volatile uint32_t *)0x40028018u)
#define INSTRUCTIONS(ticks) ((unsigned)((ticks) * 40ull / 128u))
#define COLUMNS 50

static keywords_context network;
static log_mel_state features;

int main(void)
{
    uint32_t noise = 1;
    uint32_t ticks = 0;

    log_mel_init(&features);
    keywords_init(&network);
    for (uint32_t column = 0; column < COLUMNS; column++) {
        int16_t block[LOG_MEL_HOP];

        for (uint32_t i = 0; i < LOG_MEL_HOP; i++) {
            noise = noise * 1664525u + 1013904223u;
            block[i] = (int16_t)((int32_t)(noise >> 18) - 8192);
        }
        const uint32_t begin = TICKS;
        log_mel_push(&features, block);
        ticks += TICKS - begin;
    }
    printf("features, a column of 20 ms: %7u instructions, %5u bytes of RAM\n", INSTRUCTIONS(ticks) / COLUMNS,
           (unsigned)sizeof features);

    log_mel_window(&features, keywords_input_0(&network));
    const uint32_t begin = TICKS;
    keywords_run(&network);
    ticks = TICKS - begin;
    printf("network, a run:              %7u instructions, %5u bytes of RAM\n", INSTRUCTIONS(ticks),
           (unsigned)sizeof network);
    return 0;
}
