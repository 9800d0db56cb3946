/* Prints the compiled model's sine beside the C library's. */

#include <math.h>
#include <stdio.h>

#include "sine.h"
#include "sine_helpers.h"

static sine_context context;

int main(void)
{
    sine_init(&context);
    printf("    x   model  sin(x)\n");
    for (int i = 0; i <= 12; i++) {
        const float x = 0.5f * (float)i;

        *sine_input_0(&context) = sine_input_0_quantize(x);
        sine_run(&context);
        const float y = sine_output_0_dequantize(*sine_output_0(&context));
        printf("%5.2f  %6.3f  %6.3f\n", (double)x, (double)y, sin((double)x));
    }
    return 0;
}
