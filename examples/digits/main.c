/* Reads the 360 handwritten digits of the test set with the compiled model, and compares each answer
 * with the label and with what the original .tflite model answers. Exit status 0: all answers are the same. */

#include <stdio.h>
#include <string.h>

#include "digits.h"
#include "digits_helpers.h"
#include "test_set.h"

static digits_context context;

static void print_accuracy(const char *name, unsigned correct)
{
    const unsigned basis_points = (correct * 10000u + TEST_COUNT / 2u) / TEST_COUNT;
    printf("%s %u of %u correct (%u.%02u %%)\n", name, correct, (unsigned)TEST_COUNT, basis_points / 100u,
           basis_points % 100u);
}

int main(void)
{
    unsigned correct = 0;
    unsigned original_correct = 0;
    unsigned equal = 0;

    digits_init(&context);
    printf("label  read as");
    for (unsigned i = 0; i < TEST_COUNT; i++) {
        memcpy(digits_input_0(&context), test_images[i], DIGITS_INPUT_0_SIZE);
        digits_run(&context);
        const int8_t *scores = digits_output_0(&context);
        const unsigned answer = (unsigned)digits_output_0_argmax(scores);

        if (i == 0 || test_labels[i] != test_labels[i - 1]) {
            printf("\n  %u    ", (unsigned)test_labels[i]);
        }
        printf("%u", answer);
        correct += answer == test_labels[i];
        original_correct += digits_output_0_argmax(test_outputs[i]) == test_labels[i];
        equal += memcmp(scores, test_outputs[i], DIGITS_OUTPUT_0_SIZE) == 0;
    }
    printf("\n\n");
    print_accuracy("compiled model:", correct);
    print_accuracy("original model:", original_correct);
    printf("outputs equal bit for bit: %u of %u\n", equal, (unsigned)TEST_COUNT);
    return equal == TEST_COUNT ? 0 : 1;
}
