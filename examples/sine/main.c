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
        const float x = 6.2831853f * (float)i / 12.0f;
        const long q = lroundf(x / SINE_INPUT_0_SCALE) + SINE_INPUT_0_ZERO_POINT;

        *sine_input_0(&context) = (int8_t)(q > 127 ? 127 : q);
        sine_run(&context);
        printf("%5.2f  %6.3f  %6.3f\n", (double)x,
               (double)(SINE_OUTPUT_0_SCALE * (float)(*sine_output_0(&context) - SINE_OUTPUT_0_ZERO_POINT)),
               sin((double)x));
    }
    return 0;
}
