/*
 * What CMSIS-NN's functions compute, in plain C and as TensorFlow Lite's specification of 8-bit quantisation has it
 * (https://ai.google.dev/edge/litert/models/quantization_spec).
 *
 * They want scratch where every core does, and where a core with vectors (STUB_VECTORS) or with instructions for
 * halves of words (STUB_HALVES) does, and overwrite all of it, so that a plan that gives away too little or the same
 * bytes twice changes results. STUB_GREEDY makes them want more than any plan has.
 */
#include "arm_nnfunctions.h"

#include <string.h>

static int32_t doubled_high_product(int32_t a, int32_t b)
{
    const int64_t product = (int64_t)a * b;
    const int64_t rounded = product + ((int64_t)1 << 30);

    /* Floor division by 2^31. */
    return (int32_t)((rounded - (((rounded % 2147483648LL) + 2147483648LL) % 2147483648LL)) / 2147483648LL);
}

static int32_t divided(int32_t value, int32_t exponent)
{
    const int64_t half = exponent > 0 ? (int64_t)1 << (exponent - 1) : 0;
    const int64_t magnitude = value < 0 ? -(int64_t)value : value;
    const int64_t quotient = (magnitude + half) >> exponent;

    return (int32_t)(value < 0 ? -quotient : quotient);
}

static int32_t requantized(int32_t value, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift > 0 ? 0 : -shift;

    return divided(doubled_high_product(value * (1 << left), multiplier), right);
}

static int8_t clamped(int32_t value, int32_t low, int32_t high)
{
    return (int8_t)(value < low ? low : value > high ? high : value);
}

/* The scratch holds rubbish afterwards; 0 if there is too little. */
static int used_up(const cmsis_nn_context *ctx, int32_t needed)
{
#ifdef STUB_GREEDY
    /* The library trusts its caller. */
    return 1;
#endif
    if (needed == 0) {
        return 1;
    }
    if (ctx->buf == 0 || ctx->size < needed || (uintptr_t)ctx->buf % 4 != 0) {
        return 0;
    }
    memset(ctx->buf, 0x5A, (size_t)ctx->size);
    return 1;
}

int32_t arm_convolve_wrapper_s8_get_buffer_size(
    const cmsis_nn_conv_params *conv_params, const cmsis_nn_dims *input_dims, const cmsis_nn_dims *filter_dims,
    const cmsis_nn_dims *output_dims)
{
    const int32_t depth = filter_dims->h * filter_dims->w * input_dims->c;

    (void)conv_params;
    (void)output_dims;
#ifdef STUB_GREEDY
    return 1 << 20;
#endif
    return filter_dims->h * filter_dims->w == 1 ? 0 : 4 * depth;
}

arm_cmsis_nn_status arm_convolve_wrapper_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_conv_params *conv_params,
    const cmsis_nn_per_channel_quant_params *quant_params, const cmsis_nn_dims *input_dims,
    const int8_t *input_data, const cmsis_nn_dims *filter_dims, const int8_t *filter_data,
    const cmsis_nn_dims *bias_dims, const int32_t *bias_data, const cmsis_nn_dims *output_dims,
    int8_t *output_data)
{
    const cmsis_nn_dims in = *input_dims, filter = *filter_dims, out = *output_dims;
    const int32_t needed =
        arm_convolve_wrapper_s8_get_buffer_size(conv_params, input_dims, filter_dims, output_dims);

    if (in.c != filter.c || out.c != filter.n || out.c != bias_dims->c || in.n != out.n || !used_up(ctx, needed)) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
    for (int32_t n = 0; n < out.n; n++) {
        for (int32_t y = 0; y < out.h; y++) {
            for (int32_t x = 0; x < out.w; x++) {
                for (int32_t o = 0; o < out.c; o++) {
                    int32_t sum = bias_data[o];

                    for (int32_t i = 0; i < filter.h; i++) {
                        for (int32_t j = 0; j < filter.w; j++) {
                            const int32_t row =
                                y * conv_params->stride.h - conv_params->padding.h + i * conv_params->dilation.h;
                            const int32_t column =
                                x * conv_params->stride.w - conv_params->padding.w + j * conv_params->dilation.w;

                            if (row < 0 || row >= in.h || column < 0 || column >= in.w) {
                                continue;
                            }
                            for (int32_t c = 0; c < in.c; c++) {
                                sum += (input_data[((n * in.h + row) * in.w + column) * in.c + c] +
                                        conv_params->input_offset) *
                                       filter_data[((o * filter.h + i) * filter.w + j) * in.c + c];
                            }
                        }
                    }
                    sum = requantized(sum, quant_params->multiplier[o], quant_params->shift[o]);
                    output_data[((n * out.h + y) * out.w + x) * out.c + o] = clamped(
                        sum + conv_params->output_offset, conv_params->activation.min, conv_params->activation.max);
                }
            }
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}

int32_t arm_depthwise_conv_wrapper_s8_get_buffer_size(
    const cmsis_nn_dw_conv_params *dw_conv_params, const cmsis_nn_dims *input_dims,
    const cmsis_nn_dims *filter_dims, const cmsis_nn_dims *output_dims)
{
    (void)dw_conv_params;
#ifdef STUB_VECTORS
    return input_dims->c == output_dims->c ? 4 * filter_dims->h * filter_dims->w : 0;
#else
    (void)input_dims;
    (void)output_dims;
    (void)filter_dims;
    return 0;
#endif
}

arm_cmsis_nn_status arm_depthwise_conv_wrapper_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_dw_conv_params *dw_conv_params,
    const cmsis_nn_per_channel_quant_params *quant_params, const cmsis_nn_dims *input_dims,
    const int8_t *input_data, const cmsis_nn_dims *filter_dims, const int8_t *filter_data,
    const cmsis_nn_dims *bias_dims, const int32_t *bias_data, const cmsis_nn_dims *output_dims,
    int8_t *output_data)
{
    const cmsis_nn_dims in = *input_dims, filter = *filter_dims, out = *output_dims;
    const int32_t needed =
        arm_depthwise_conv_wrapper_s8_get_buffer_size(dw_conv_params, input_dims, filter_dims, output_dims);

    if (in.n != 1 || in.c * dw_conv_params->ch_mult != out.c || filter.c != out.c || filter.n != 1 ||
        out.c != bias_dims->c || dw_conv_params->dilation.h != 1 || dw_conv_params->dilation.w != 1 ||
        !used_up(ctx, needed)) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
    for (int32_t y = 0; y < out.h; y++) {
        for (int32_t x = 0; x < out.w; x++) {
            for (int32_t o = 0; o < out.c; o++) {
                int32_t sum = bias_data[o];

                for (int32_t i = 0; i < filter.h; i++) {
                    for (int32_t j = 0; j < filter.w; j++) {
                        const int32_t row = y * dw_conv_params->stride.h - dw_conv_params->padding.h + i;
                        const int32_t column = x * dw_conv_params->stride.w - dw_conv_params->padding.w + j;

                        if (row < 0 || row >= in.h || column < 0 || column >= in.w) {
                            continue;
                        }
                        sum += (input_data[(row * in.w + column) * in.c + o / dw_conv_params->ch_mult] +
                                dw_conv_params->input_offset) *
                               filter_data[(i * filter.w + j) * out.c + o];
                    }
                }
                sum = requantized(sum, quant_params->multiplier[o], quant_params->shift[o]);
                output_data[(y * out.w + x) * out.c + o] =
                    clamped(sum + dw_conv_params->output_offset, dw_conv_params->activation.min,
                            dw_conv_params->activation.max);
            }
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}

int32_t arm_fully_connected_s8_get_buffer_size(const cmsis_nn_dims *filter_dims)
{
#ifdef STUB_VECTORS
    return 4 * filter_dims->c;
#else
    (void)filter_dims;
    return 0;
#endif
}

arm_cmsis_nn_status arm_fully_connected_wrapper_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_fc_params *fc_params, const cmsis_nn_quant_params *quant_params,
    const cmsis_nn_dims *input_dims, const int8_t *input_data, const cmsis_nn_dims *filter_dims,
    const int8_t *filter_data, const cmsis_nn_dims *bias_dims, const int32_t *bias_data,
    const cmsis_nn_dims *output_dims, int8_t *output_data)
{
    const int32_t depth = filter_dims->n, units = filter_dims->c;

    if (input_dims->h * input_dims->w * input_dims->c != depth || output_dims->c != units ||
        bias_dims->c != units || input_dims->n != output_dims->n || fc_params->filter_offset != 0) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
#ifdef STUB_VECTORS
    if (ctx->buf == 0 || ctx->size < arm_fully_connected_s8_get_buffer_size(filter_dims)) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
#endif
    for (int32_t n = 0; n < input_dims->n; n++) {
        for (int32_t o = 0; o < units; o++) {
            const int32_t channel = quant_params->is_per_channel ? o : 0;
#ifdef STUB_VECTORS
            /* With vectors, the sums are of raw inputs; what the offset adds is known beforehand. */
            const int32_t offset = 0;
            int32_t sum = ((const int32_t *)ctx->buf)[o];

            (void)bias_data;
#else
            const int32_t offset = fc_params->input_offset;
            int32_t sum = bias_data[o];

            (void)ctx;
#endif
            for (int32_t k = 0; k < depth; k++) {
                sum += (input_data[n * depth + k] + offset) * filter_data[o * depth + k];
            }
            sum = requantized(sum, quant_params->multiplier[channel], quant_params->shift[channel]);
            output_data[n * units + o] =
                clamped(sum + fc_params->output_offset, fc_params->activation.min, fc_params->activation.max);
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}

int32_t arm_avgpool_s8_get_buffer_size(const int dim_dst_width, const int ch_src)
{
    (void)dim_dst_width;
#ifdef STUB_HALVES
    return 4 * ch_src;
#else
    (void)ch_src;
    return 0;
#endif
}

static arm_cmsis_nn_status pooled(
    const cmsis_nn_pool_params *params, const cmsis_nn_dims *input_dims, const int8_t *input,
    const cmsis_nn_dims *filter, const cmsis_nn_dims *output_dims, int8_t *output, int average)
{
    const cmsis_nn_dims in = *input_dims, out = *output_dims;

    if (in.n < 1 || in.n != out.n || in.c != out.c) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
    for (int32_t n = 0; n < out.n; n++) {
        for (int32_t y = 0; y < out.h; y++) {
            for (int32_t x = 0; x < out.w; x++) {
                for (int32_t c = 0; c < out.c; c++) {
                    int32_t sum = 0, count = 0, largest = -128;

                    for (int32_t i = 0; i < filter->h; i++) {
                        for (int32_t j = 0; j < filter->w; j++) {
                            const int32_t row = y * params->stride.h - params->padding.h + i;
                            const int32_t column = x * params->stride.w - params->padding.w + j;

                            if (row >= 0 && row < in.h && column >= 0 && column < in.w) {
                                const int32_t value = input[((n * in.h + row) * in.w + column) * in.c + c];

                                sum += value;
                                count++;
                                largest = value > largest ? value : largest;
                            }
                        }
                    }
                    if (count == 0) {
                        return ARM_CMSIS_NN_ARG_ERROR;
                    }
                    sum = (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
                    output[((n * out.h + y) * out.w + x) * out.c + c] =
                        clamped(average ? sum : largest, params->activation.min, params->activation.max);
                }
            }
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_avgpool_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_pool_params *pool_params, const cmsis_nn_dims *input_dims,
    const int8_t *input_data, const cmsis_nn_dims *filter_dims, const cmsis_nn_dims *output_dims,
    int8_t *output_data)
{
    if (!used_up(ctx, arm_avgpool_s8_get_buffer_size((int)output_dims->w, (int)input_dims->c))) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
    return pooled(pool_params, input_dims, input_data, filter_dims, output_dims, output_data, 1);
}

arm_cmsis_nn_status arm_max_pool_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_pool_params *pool_params, const cmsis_nn_dims *input_dims,
    const int8_t *input_data, const cmsis_nn_dims *filter_dims, const cmsis_nn_dims *output_dims,
    int8_t *output_data)
{
    (void)ctx;
    return pooled(pool_params, input_dims, input_data, filter_dims, output_dims, output_data, 0);
}

arm_cmsis_nn_status arm_elementwise_add_s8(
    const int8_t *input_1_vect, const int8_t *input_2_vect, const int32_t input_1_offset,
    const int32_t input_1_mult, const int32_t input_1_shift, const int32_t input_2_offset,
    const int32_t input_2_mult, const int32_t input_2_shift, const int32_t left_shift, int8_t *output,
    const int32_t out_offset, const int32_t out_mult, const int32_t out_shift,
    const int32_t out_activation_min, const int32_t out_activation_max, const int32_t block_size)
{
    if (input_1_shift > 0 || input_2_shift > 0 || out_shift > 0) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
    for (int32_t i = 0; i < block_size; i++) {
        const int32_t first =
            requantized((input_1_vect[i] + input_1_offset) * (1 << left_shift), input_1_mult, input_1_shift);
        const int32_t second =
            requantized((input_2_vect[i] + input_2_offset) * (1 << left_shift), input_2_mult, input_2_shift);

        output[i] = clamped(requantized(first + second, out_mult, out_shift) + out_offset, out_activation_min,
                            out_activation_max);
    }
    return ARM_CMSIS_NN_SUCCESS;
}

/* exp(x) in Q0 for x <= 0 in Q5. */
static int32_t exponential(int32_t x)
{
    static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = 1 << 24;
    int32_t low, y, squared, cubic, result;

    if (x == 0) {
        return 2147483647;
    }
    /* x = low - remainder; low in [-1/4, 0) by a polynomial around -1/8, the remainder's bits by factors. */
    low = (x & (quarter - 1)) - quarter;
    y = low * 32 + (1 << 28);
    squared = doubled_high_product(y, y);
    cubic = divided(doubled_high_product(squared, squared), 2) + doubled_high_product(squared, y);
    result = y + divided(doubled_high_product(cubic, 715827883) + squared, 1);
    result = 1895147668 + doubled_high_product(1895147668, result);
    for (int32_t bit = 0; bit < 7; bit++) {
        if (((low - x) >> (24 + bit)) & 1) {
            result = doubled_high_product(result, factors[bit]);
        }
    }
    return result;
}

/* 1 / (1 + x) in Q0 for x in [0, 1) in Q0, by three steps of Newton's. */
static int32_t reciprocal(int32_t x)
{
    const int64_t sum = (int64_t)x + 2147483647;
    const int32_t half = (int32_t)((sum + (sum >= 0 ? 1 : -1)) / 2);
    int32_t estimate = 1515870810 + doubled_high_product(half, -1010580540);

    for (int32_t i = 0; i < 3; i++) {
        const int32_t error = (1 << 29) - doubled_high_product(half, estimate);

        estimate += doubled_high_product(estimate, error) * 4;
    }
    /* 1 itself is one more than Q0 has. */
    return estimate > 1073741823 ? 2147483647 : estimate * 2;
}

void arm_softmax_s8(
    const int8_t *input, const int32_t num_rows, const int32_t row_size, const int32_t mult,
    const int32_t shift, const int32_t diff_min, int8_t *output)
{
    for (int32_t row = 0; row < num_rows; row++, input += row_size, output += row_size) {
        int32_t largest = -128, sum = 0, headroom = 0, scale;

        for (int32_t i = 0; i < row_size; i++) {
            largest = input[i] > largest ? input[i] : largest;
        }
        for (int32_t i = 0; i < row_size; i++) {
            if (input[i] - largest >= diff_min) {
                sum += divided(exponential(doubled_high_product((input[i] - largest) * (1 << shift), mult)), 12);
            }
        }
        while (((uint32_t)sum << headroom) < 2147483648U) {
            headroom++;
        }
        scale = reciprocal((int32_t)(((uint32_t)sum << headroom) - 2147483648U));
        for (int32_t i = 0; i < row_size; i++) {
            int32_t value = -128;

            if (input[i] - largest >= diff_min) {
                value = exponential(doubled_high_product((input[i] - largest) * (1 << shift), mult));
                value = divided(doubled_high_product(scale, value), 12 - headroom + 23) - 128;
            }
            output[i] = clamped(value, -128, 127);
        }
    }
}
