/* Prints the compiled model's sine beside the C library's. */

#include <math.h>
#include <stdio.h>

#include "sine.h"

static sine_context context;

int main(void)
{
    sine_init(&context);
    printf("    x   model  sin(x)\n");
    for (int i = 0; i <= 12; i++) {
        const float x = 0.5f * (float)i;

        *sine_input_0(&context) = (int8_t)(lroundf(x / SINE_INPUT_0_SCALE) + SINE_INPUT_0_ZERO_POINT);
        sine_run(&context);
        const float y = SINE_OUTPUT_0_SCALE * (float)(*sine_output_0(&context) - SINE_OUTPUT_0_ZERO_POINT);
        printf("%5.2f  %6.3f  %6.3f\n", (double)x, (double)y, sin((double)x));
    }
    return 0;
}
