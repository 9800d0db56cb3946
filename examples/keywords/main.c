/* Listens to WAV files, as if they came from a microphone in blocks of 20 ms, and prints the keywords in them. */

#include <stdio.h>

#include "detector.h"
#include "log_mel.h"
#include "keywords.h"
#include "keywords_helpers.h"
#include "wav.h"

#define BLOCKS_PER_RUN 5 /* the network runs every 100 ms */
#define TRAILING_RUNS 5  /* in the silence behind the file */

static keywords_context network;
static log_mel_state features;
static detector_state detector;
static uint32_t checksum; /* of all features, to compare machines by (FNV-1a) */

static void add_to_checksum(const int8_t *column)
{
    for (uint32_t band = 0; band < LOG_MEL_BANDS; band++) {
        checksum = (checksum ^ (uint8_t)column[band]) * 16777619u;
    }
}

/* What a firmware does whenever so many blocks of sound have come. */
static void run_network(uint32_t milliseconds)
{
    uint32_t label;
    uint32_t percent;

    log_mel_window(&features, keywords_input_0(&network));
    keywords_run(&network);
    if (detector_push(&detector, keywords_output_0(&network), &label, &percent)) {
        printf("%3u.%u s  %-6s %3u %%\n", (unsigned)(milliseconds / 1000), (unsigned)(milliseconds / 100 % 10),
               keywords_output_0_label(label), (unsigned)percent);
    }
}

static bool listen(const char *name)
{
    static wav_reader wav;
    uint32_t blocks = 0;
    uint32_t trailing = TRAILING_RUNS * BLOCKS_PER_RUN;

    if (!wav_open(&wav, name)) {
        fprintf(stderr, "%s\n", wav.problem);
        return false;
    }
    printf("%s\n", name);
    log_mel_init(&features);
    detector_init(&detector);
    while (trailing > 0) {
        int16_t block[LOG_MEL_HOP] = {0};

        if (wav_read(&wav, block, LOG_MEL_HOP) == 0) {
            trailing--;
        }
        log_mel_push(&features, block);
        add_to_checksum(log_mel_newest(&features));
        if (++blocks % BLOCKS_PER_RUN == 0) {
            run_network(blocks * (1000u * LOG_MEL_HOP / LOG_MEL_RATE));
        }
    }
    wav_close(&wav);
    return true;
}

int main(int argc, char **argv)
{
    int status = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: keywords FILE.wav ...\n");
        return 2;
    }
    keywords_init(&network);
    checksum = 2166136261u;
    for (int i = 1; i < argc; i++) {
        if (!listen(argv[i])) {
            status = 1;
        }
    }
    printf("checksum of the features: %08lx\n", (unsigned long)checksum);
    return status;
}
