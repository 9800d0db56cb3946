/* Reads the handwritten digits of the test set with the compiled int8 model, and compares its outputs with those
 * of the reference. Exit status 0: all of them are the same. */

#include <stdio.h>
#include <string.h>

#include "digits.h"
#include "digits_helpers.h"
#include "test_set.h"

static digits_context context;

int main(void)
{
    unsigned correct = 0;
    unsigned equal = 0;

    digits_init(&context);
    for (unsigned i = 0; i < TEST_COUNT; i++) {
        int8_t *image = digits_input_0(&context);
        for (unsigned k = 0; k < DIGITS_INPUT_0_LENGTH; k++) {
            /* As in training: pixels from 0 to 16 become numbers from 0 to 1. */
            image[k] = digits_input_0_quantize((float)test_images[i][k] / 16.0f);
        }
        digits_run(&context);
        const int8_t *scores = digits_output_0(&context);
        correct += (unsigned)digits_output_0_argmax(scores) == test_labels[i];
        equal += memcmp(scores, test_outputs[i], DIGITS_OUTPUT_0_SIZE) == 0;
    }
    const unsigned basis_points = (correct * 10000u + TEST_COUNT / 2u) / TEST_COUNT;
    printf("int8, C on this core:  %u of %u correct (%u.%02u %%)\n", correct, (unsigned)TEST_COUNT,
           basis_points / 100u, basis_points % 100u);
    printf("outputs of C and TFLM: %u of %u equal\n", equal, (unsigned)TEST_COUNT);
    return equal == TEST_COUNT ? 0 : 1;
}
