/* Looks for a person in the frames of a camera, which come row by row, and compares each answer with what the
 * original .tflite model answers. Exit status 0: all answers are the same. */

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "expected.h"
#include "person.h"
#include "person_helpers.h"
#include "scaler.h"

#define FRAME_WIDTH 160u
#define FRAME_HEIGHT 120u
#define SIDE 96u   /* of the network's picture */
#define PERSON 1   /* the class; 0 is nobody */
#define APPEARS 70 /* per cent from which on somebody is there, */
#define LEAVES 40  /* and below which nobody is any more */

#if PERSON_INPUT_0_LENGTH == SIDE * SIDE
#define CHANNELS 1u
#define to_input person_input_0_from_grey8
#elif PERSON_INPUT_0_LENGTH == SIDE * SIDE * 3u
#define CHANNELS 3u
#define to_input person_input_0_from_rgb888
#else
#error "the network must take a picture of 96 x 96 pixels, grey or RGB"
#endif
#if PERSON_OUTPUT_0_LENGTH != 2
#error "the network must have two classes: nobody, and a person"
#endif

#ifdef COUNTER
#define NOW() (*(volatile uint32_t *)COUNTER) /* five ticks are 16 instructions ... */
#else
#define NOW() 0u
#endif

static person_context network;
static scaler scale;
static uint32_t scaler_words[SCALER_WORDS(SIDE, CHANNELS)];
static uint8_t row[2u * FRAME_WIDTH]; /* what DMA fills on a board */
static uint32_t scaling;              /* ticks of all frames */
static uint32_t running;

/* Waits for the camera's next row; false: there are no more. */
static bool receive_row(FILE *camera)
{
    return fread(row, sizeof row, 1, camera) == 1;
}

/* The next frame becomes the network's input; false: there is none. */
static bool capture(FILE *camera)
{
    uint8_t *const picture = (uint8_t *)person_input_0(&network); /* is free until the network runs */

    scaler_begin(&scale, picture);
    for (uint32_t y = 0; y < FRAME_HEIGHT; y++) {
        if (!receive_row(camera)) {
            return false;
        }
        const uint32_t start = NOW();
        scaler_push(&scale, row);
        scaling += NOW() - start;
    }
    const uint32_t start = NOW();
    to_input(person_input_0(&network), picture); /* in place */
    scaling += NOW() - start;
    return true;
}

static void run(void)
{
    const uint32_t start = NOW();
    person_run(&network);
    running += NOW() - start;
}

int main(void)
{
    FILE *const camera = fopen("frames.rgb565", "rb");
    bool present = false;
    unsigned count = 0;
    unsigned equal = 0;

    if (camera == NULL) {
        printf("frames.rgb565 cannot be read\n");
        return 1;
    }
    person_init(&network);
    scaler_init(&scale, FRAME_WIDTH, FRAME_HEIGHT, SIDE, CHANNELS, scaler_words);
    printf("frame  person  decision\n");
    while (count < FRAME_COUNT && capture(camera)) {
        run();
        const int8_t *const scores = person_output_0(&network);
        const int percent = (int)(100.0f * person_output_0_dequantize(scores[PERSON]) + 0.5f);

        present = percent >= (present ? LEAVES : APPEARS);
        printf("%5u  %4d %%  %s\n", count, percent, present ? "somebody" : "nobody");
        equal += memcmp(scores, expected_outputs[count], PERSON_OUTPUT_0_SIZE) == 0;
        count++;
    }
    printf("\noutputs equal bit for bit: %u of %u\n", equal, (unsigned)FRAME_COUNT);
#ifdef COUNTER
    printf("instructions for a frame: %lu to scale it, %lu to run the network\n",
           (unsigned long)(scaling / 16u * 5u / FRAME_COUNT), (unsigned long)(running / 16u * 5u / FRAME_COUNT));
#endif
    fclose(camera);
    return equal == FRAME_COUNT ? 0 : 1;
}
