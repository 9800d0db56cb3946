/*
 * The Helium intrinsics of generated code in plain C, so that the C of Cortex-M55 and M85 runs on this machine. Results follow Arm's
 * "MVE intrinsics" and the Armv8.1-M reference manual, a lane at a time: sums wrap round unless an instruction saturates. Only lanes
 * that a predicate has are loaded and stored. Vectors of addresses have 32 bits a lane, so that programs must have them, too.
 */
#ifndef HOST_MODEL_ARM_MVE_H
#define HOST_MODEL_ARM_MVE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef int8_t int8x16_t __attribute__((vector_size(16)));
typedef int16_t int16x8_t __attribute__((vector_size(16)));
typedef int32_t int32x4_t __attribute__((vector_size(16)));
typedef uint8_t uint8x16_t __attribute__((vector_size(16)));
typedef uint16_t uint16x8_t __attribute__((vector_size(16)));
typedef uint32_t uint32x4_t __attribute__((vector_size(16)));
typedef float float32x4_t __attribute__((vector_size(16)));

typedef struct {
    int8x16_t val[4];
} int8x16x4_t;

/* A bit for each byte of a vector. */
typedef uint16_t mve_pred16_t;

#define HOST_ALL ((mve_pred16_t)0xffff)
/* Whether a predicate has lane i of so many. */
#define HOST_HAS(predicate, i, lanes) (((predicate) >> ((i) * (16 / (lanes)))) & 1)

/* ---- scalars --------------------------------------------------------------------------------------------------------------- */

/* Conversions to fewer bits keep the lowest ones. */
static inline int32_t host_wrap(int64_t value)
{
    return (int32_t)(uint32_t)(uint64_t)value;
}

static inline int64_t host_saturate(int64_t value, int bits)
{
    const int64_t end = (int64_t)1 << (bits - 1);

    return value < -end ? -end : value >= end ? end - 1 : value;
}

/* value * 2^shift, to the left or, rounded down, to the right; by up to 63 bits to the right. */
static inline int64_t host_shift(int64_t value, int shift)
{
    if (shift >= 0) {
        return shift < 32 ? (int64_t)((uint64_t)value << shift) : (int64_t)0;
    }
    return shift > -64 ? value >> -shift : value >> 63;
}

/* The same, rounded to the nearest one, up if there are two. */
static inline int64_t host_round_shift(int64_t value, int shift)
{
    if (shift >= 0) {
        return host_shift(value, shift);
    }
    return shift >= -32 ? (value + ((int64_t)1 << (-shift - 1))) >> -shift : 0;
}

static inline int64_t host_saturating_shift(int64_t value, int shift)
{
    if (shift >= 32) {
        return value > 0 ? INT32_MAX : value < 0 ? INT32_MIN : 0;
    }
    return shift >= 0 ? host_saturate(value * ((int64_t)1 << shift), 32) : host_shift(value, shift);
}

/* Instructions take the lowest byte of a number of bits. */
static inline int host_bits(int32_t shift)
{
    return (int8_t)(uint8_t)(uint32_t)shift;
}

/* (2 * a * b + addend) / 2^32, rounded down and saturated. */
static inline int32_t host_doubled_high(int32_t a, int32_t b, int64_t addend)
{
    /* Half of it in 64 bits: twice the product may not fit. */
    return (int32_t)host_saturate(((int64_t)a * b + (addend >> 1)) >> 31, 32);
}

static inline int32_t host_from_float(float value)
{
    if (value != value) {
        return 0;
    }
    return value >= 2147483648.0f ? INT32_MAX : value < -2147483648.0f ? INT32_MIN : (int32_t)value;
}

/* The larger number: of a number and no number, the number; of zeros, the positive one. */
static inline float host_maximum(float a, float b)
{
    if (a != a || b != b) {
        return a != a ? b : a;
    }
    return a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}

static inline float host_minimum(float a, float b)
{
    return -host_maximum(-a, -b);
}

/* ---- loads and stores ------------------------------------------------------------------------------------------------------ */

/* Vectors of `lanes` numbers from elements in memory, all or those of a predicate; others are 0. */
#define HOST_LOAD(name, name_z, vector, element, lanes) \
    static inline vector name_z(const element *memory, mve_pred16_t predicate) \
    { \
        vector result = {0}; \
        for (int i = 0; i < (lanes); i++) { \
            if (HOST_HAS(predicate, i, lanes)) { \
                result[i] = memory[i]; \
            } \
        } \
        return result; \
    } \
    static inline vector name(const element *memory) \
    { \
        return name_z(memory, HOST_ALL); \
    }

HOST_LOAD(vldrbq_s8, vldrbq_z_s8, int8x16_t, int8_t, 16)
HOST_LOAD(vldrbq_u8, vldrbq_z_u8, uint8x16_t, uint8_t, 16)
HOST_LOAD(vldrbq_s16, vldrbq_z_s16, int16x8_t, int8_t, 8)
HOST_LOAD(vldrbq_s32, vldrbq_z_s32, int32x4_t, int8_t, 4)
HOST_LOAD(vldrhq_s16, vldrhq_z_s16, int16x8_t, int16_t, 8)
HOST_LOAD(vldrhq_u16, vldrhq_z_u16, uint16x8_t, uint16_t, 8)
HOST_LOAD(vldrhq_s32, vldrhq_z_s32, int32x4_t, int16_t, 4)
HOST_LOAD(vldrhq_u32, vldrhq_z_u32, uint32x4_t, uint16_t, 4)
HOST_LOAD(vldrwq_s32, vldrwq_z_s32, int32x4_t, int32_t, 4)
HOST_LOAD(vldrwq_u32, vldrwq_z_u32, uint32x4_t, uint32_t, 4)
HOST_LOAD(vldrwq_f32, vldrwq_z_f32, float32x4_t, float, 4)

/* The lowest bits of lanes to elements in memory. */
#define HOST_STORE(name, name_p, vector, element, lanes) \
    static inline void name_p(element *memory, vector value, mve_pred16_t predicate) \
    { \
        for (int i = 0; i < (lanes); i++) { \
            if (HOST_HAS(predicate, i, lanes)) { \
                memory[i] = (element)value[i]; \
            } \
        } \
    } \
    static inline void name(element *memory, vector value) \
    { \
        name_p(memory, value, HOST_ALL); \
    }

HOST_STORE(vstrbq_s8, vstrbq_p_s8, int8x16_t, int8_t, 16)
HOST_STORE(vstrbq_u8, vstrbq_p_u8, uint8x16_t, uint8_t, 16)
HOST_STORE(vstrbq_s16, vstrbq_p_s16, int16x8_t, int8_t, 8)
HOST_STORE(vstrbq_s32, vstrbq_p_s32, int32x4_t, int8_t, 4)
HOST_STORE(vstrhq_s16, vstrhq_p_s16, int16x8_t, int16_t, 8)
HOST_STORE(vstrhq_u16, vstrhq_p_u16, uint16x8_t, uint16_t, 8)
HOST_STORE(vstrhq_s32, vstrhq_p_s32, int32x4_t, int16_t, 4)
HOST_STORE(vstrwq_s32, vstrwq_p_s32, int32x4_t, int32_t, 4)
HOST_STORE(vstrwq_f32, vstrwq_p_f32, float32x4_t, float, 4)

static inline void vst1q_s32(int32_t *memory, int32x4_t value)
{
    vstrwq_s32(memory, value);
}

/* Lanes of four vectors in turn. */
static inline void vst4q_s8(int8_t *memory, int8x16x4_t value)
{
    for (int i = 0; i < 64; i++) {
        memory[i] = value.val[i % 4][i / 4];
    }
}

/* Elements `unit` bytes times a lane of offsets behind a base. */
#define HOST_GATHER(name, name_z, vector, offsets, element, lanes, unit) \
    static inline vector name_z(const element *base, offsets offset, mve_pred16_t predicate) \
    { \
        vector result = {0}; \
        for (int i = 0; i < (lanes); i++) { \
            if (HOST_HAS(predicate, i, lanes)) { \
                result[i] = *(const element *)((uintptr_t)base + (unit) * offset[i]); \
            } \
        } \
        return result; \
    } \
    static inline vector name(const element *base, offsets offset) \
    { \
        return name_z(base, offset, HOST_ALL); \
    }

HOST_GATHER(vldrbq_gather_offset_u8, vldrbq_gather_offset_z_u8, uint8x16_t, uint8x16_t, uint8_t, 16, 1u)
HOST_GATHER(vldrbq_gather_offset_s16, vldrbq_gather_offset_z_s16, int16x8_t, uint16x8_t, int8_t, 8, 1u)
HOST_GATHER(vldrhq_gather_shifted_offset_s16, vldrhq_gather_shifted_offset_z_s16, int16x8_t, uint16x8_t, int16_t, 8, 2u)
HOST_GATHER(vldrhq_gather_shifted_offset_s32, vldrhq_gather_shifted_offset_z_s32, int32x4_t, uint32x4_t, int16_t, 4, 2u)
HOST_GATHER(vldrhq_gather_shifted_offset_u32, vldrhq_gather_shifted_offset_z_u32, uint32x4_t, uint32x4_t, uint16_t, 4, 2u)
HOST_GATHER(vldrwq_gather_offset_s32, vldrwq_gather_offset_z_s32, int32x4_t, uint32x4_t, int32_t, 4, 1u)
HOST_GATHER(vldrwq_gather_shifted_offset_s32, vldrwq_gather_shifted_offset_z_s32, int32x4_t, uint32x4_t, int32_t, 4, 4u)

static inline int32x4_t vldrwq_gather_base_s32(uint32x4_t addresses, int offset)
{
    return vldrwq_gather_offset_s32((const int32_t *)(uintptr_t)0, addresses + (uint32_t)offset);
}

#define HOST_SCATTER(name, name_p, vector, offsets, element, lanes, unit) \
    static inline void name_p(element *base, offsets offset, vector value, mve_pred16_t predicate) \
    { \
        for (int i = 0; i < (lanes); i++) { \
            if (HOST_HAS(predicate, i, lanes)) { \
                *(element *)((uintptr_t)base + (unit) * offset[i]) = (element)value[i]; \
            } \
        } \
    } \
    static inline void name(element *base, offsets offset, vector value) \
    { \
        name_p(base, offset, value, HOST_ALL); \
    }

HOST_SCATTER(vstrbq_scatter_offset_s16, vstrbq_scatter_offset_p_s16, int16x8_t, uint16x8_t, int8_t, 8, 1u)
HOST_SCATTER(vstrbq_scatter_offset_s32, vstrbq_scatter_offset_p_s32, int32x4_t, uint32x4_t, int8_t, 4, 1u)
HOST_SCATTER(vstrwq_scatter_shifted_offset_s32, vstrwq_scatter_shifted_offset_p_s32, int32x4_t, uint32x4_t, int32_t, 4, 4u)

/* ---- predicates ------------------------------------------------------------------------------------------------------------ */

/* The first `count` lanes, all if there are fewer. */
#define HOST_FIRST(name, lanes) \
    static inline mve_pred16_t name(uint32_t count) \
    { \
        return count >= (lanes) ? HOST_ALL : (mve_pred16_t)((1u << (count * (16 / (lanes)))) - 1u); \
    }

HOST_FIRST(vctp8q, 16)
HOST_FIRST(vctp16q, 8)
HOST_FIRST(vctp32q, 4)

#define HOST_COMPARE(name, vector, scalar, relation) \
    static inline mve_pred16_t name(vector a, scalar b) \
    { \
        uint32_t result = 0; \
        for (int i = 0; i < 4; i++) { \
            result |= a[i] relation b ? 0xfu << (4 * i) : 0; \
        } \
        return (mve_pred16_t)result; \
    }

HOST_COMPARE(vcmpeqq_n_s32, int32x4_t, int32_t, ==)
HOST_COMPARE(vcmpgeq_n_s32, int32x4_t, int32_t, >=)
HOST_COMPARE(vcmpgtq_n_s32, int32x4_t, int32_t, >)
HOST_COMPARE(vcmpltq_n_s32, int32x4_t, int32_t, <)
HOST_COMPARE(vcmphiq_n_u32, uint32x4_t, uint32_t, >)
HOST_COMPARE(vcmpgeq_n_f32, float32x4_t, float, >=)
HOST_COMPARE(vcmpgtq_n_f32, float32x4_t, float, >)

/* ---- lane by lane ---------------------------------------------------------------------------------------------------------- */

/* Results of an expression of a, and of b, and of the lane's number i. */
#define HOST_LANES(lanes, vector, expression) \
    { \
        vector result = {0}; \
        for (int i = 0; i < (lanes); i++) { \
            result[i] = (expression); \
        } \
        return result; \
    }
#define HOST_DUPLICATE(name, vector, scalar, lanes) \
    static inline vector name(scalar a) HOST_LANES(lanes, vector, a)
#define HOST_UNARY(name, vector, lanes, expression) \
    static inline vector name(vector a) HOST_LANES(lanes, vector, expression)
#define HOST_BINARY(name, vector, lanes, expression) \
    static inline vector name(vector a, vector b) HOST_LANES(lanes, vector, expression)
#define HOST_SCALAR(name, vector, scalar, lanes, expression) \
    static inline vector name(vector a, scalar b) HOST_LANES(lanes, vector, expression)
#define HOST_CONVERT(name, vector, source, lanes, expression) \
    static inline vector name(source a) HOST_LANES(lanes, vector, expression)
#define HOST_REINTERPRET(name, vector, source) \
    static inline vector name(source a) \
    { \
        return (vector)a; \
    }

HOST_DUPLICATE(vdupq_n_s8, int8x16_t, int8_t, 16)
HOST_DUPLICATE(vdupq_n_u8, uint8x16_t, uint8_t, 16)
HOST_DUPLICATE(vdupq_n_s16, int16x8_t, int16_t, 8)
HOST_DUPLICATE(vdupq_n_u16, uint16x8_t, uint16_t, 8)
HOST_DUPLICATE(vdupq_n_s32, int32x4_t, int32_t, 4)
HOST_DUPLICATE(vdupq_n_u32, uint32x4_t, uint32_t, 4)
HOST_DUPLICATE(vdupq_n_f32, float32x4_t, float, 4)

static inline int16x8_t vuninitializedq_s16(void)
{
    return vdupq_n_s16(0x5a5a);
}

/* Numbers from a on, by a step. */
static inline uint16x8_t vidupq_n_u16(uint32_t a, int step) HOST_LANES(8, uint16x8_t, (uint16_t)(a + (uint32_t)(i * step)))
static inline uint32x4_t vidupq_n_u32(uint32_t a, int step) HOST_LANES(4, uint32x4_t, a + (uint32_t)(i * step))

static inline int32x4_t vsetq_lane_s32(int32_t a, int32x4_t vector, int lane)
{
    vector[lane] = a;
    return vector;
}

static inline int32x4_t vdupq_m_n_s32(int32x4_t inactive, int32_t a, mve_pred16_t p)
    HOST_LANES(4, int32x4_t, HOST_HAS(p, i, 4) ? a : inactive[i])
static inline int32x4_t vpselq_s32(int32x4_t a, int32x4_t b, mve_pred16_t p)
    HOST_LANES(4, int32x4_t, HOST_HAS(p, i, 4) ? a[i] : b[i])
static inline float32x4_t vpselq_f32(float32x4_t a, float32x4_t b, mve_pred16_t p)
    HOST_LANES(4, float32x4_t, HOST_HAS(p, i, 4) ? a[i] : b[i])

HOST_REINTERPRET(vreinterpretq_s8_s32, int8x16_t, int32x4_t)
HOST_REINTERPRET(vreinterpretq_s16_s32, int16x8_t, int32x4_t)
HOST_REINTERPRET(vreinterpretq_s32_s16, int32x4_t, int16x8_t)
HOST_REINTERPRET(vreinterpretq_s32_u32, int32x4_t, uint32x4_t)
HOST_REINTERPRET(vreinterpretq_s32_f32, int32x4_t, float32x4_t)
HOST_REINTERPRET(vreinterpretq_u32_s32, uint32x4_t, int32x4_t)
HOST_REINTERPRET(vreinterpretq_u32_f32, uint32x4_t, float32x4_t)

HOST_BINARY(vaddq_s16, int16x8_t, 8, (int16_t)(a[i] + b[i]))
HOST_BINARY(vaddq_s32, int32x4_t, 4, host_wrap((int64_t)a[i] + b[i]))
HOST_SCALAR(vaddq_n_s32, int32x4_t, int32_t, 4, host_wrap((int64_t)a[i] + b))
HOST_SCALAR(vaddq_n_u32, uint32x4_t, uint32_t, 4, a[i] + b)
HOST_BINARY(vsubq_s32, int32x4_t, 4, host_wrap((int64_t)a[i] - b[i]))
HOST_SCALAR(vsubq_n_s32, int32x4_t, int32_t, 4, host_wrap((int64_t)a[i] - b))
HOST_SCALAR(vqaddq_n_s16, int16x8_t, int16_t, 8, (int16_t)host_saturate(a[i] + b, 16))
HOST_SCALAR(vqaddq_n_s32, int32x4_t, int32_t, 4, (int32_t)host_saturate((int64_t)a[i] + b, 32))
HOST_UNARY(vabsq_s32, int32x4_t, 4, host_wrap(a[i] < 0 ? -(int64_t)a[i] : a[i]))
HOST_UNARY(vnegq_s32, int32x4_t, 4, host_wrap(-(int64_t)a[i]))

HOST_BINARY(vmaxq_s8, int8x16_t, 16, a[i] > b[i] ? a[i] : b[i])
HOST_BINARY(vmaxq_s16, int16x8_t, 8, a[i] > b[i] ? a[i] : b[i])
HOST_BINARY(vmaxq_s32, int32x4_t, 4, a[i] > b[i] ? a[i] : b[i])
HOST_BINARY(vmaxq_u32, uint32x4_t, 4, a[i] > b[i] ? a[i] : b[i])
HOST_BINARY(vminq_s8, int8x16_t, 16, a[i] < b[i] ? a[i] : b[i])
HOST_BINARY(vminq_s16, int16x8_t, 8, a[i] < b[i] ? a[i] : b[i])
HOST_BINARY(vminq_s32, int32x4_t, 4, a[i] < b[i] ? a[i] : b[i])
HOST_BINARY(vminq_u32, uint32x4_t, 4, a[i] < b[i] ? a[i] : b[i])

HOST_BINARY(vandq_s32, int32x4_t, 4, a[i] & b[i])
HOST_BINARY(vandq_u32, uint32x4_t, 4, a[i] & b[i])
HOST_BINARY(veorq_s32, int32x4_t, 4, a[i] ^ b[i])
HOST_BINARY(veorq_u8, uint8x16_t, 16, (uint8_t)(a[i] ^ b[i]))

/* ---- shifts ---------------------------------------------------------------------------------------------------------------- */

HOST_SCALAR(vshlq_n_s8, int8x16_t, int, 16, (int8_t)host_shift(a[i], b))
HOST_SCALAR(vshlq_n_s16, int16x8_t, int, 8, (int16_t)host_shift(a[i], b))
HOST_SCALAR(vshlq_n_s32, int32x4_t, int, 4, host_wrap(host_shift(a[i], b)))
HOST_SCALAR(vshlq_r_s32, int32x4_t, int32_t, 4, host_wrap(host_shift(a[i], host_bits(b))))
HOST_BINARY(vshlq_s32, int32x4_t, 4, host_wrap(host_shift(a[i], host_bits(b[i]))))
HOST_SCALAR(vshrq_n_s8, int8x16_t, int, 16, (int8_t)host_shift(a[i], -b))
HOST_SCALAR(vshrq_n_s16, int16x8_t, int, 8, (int16_t)host_shift(a[i], -b))
HOST_SCALAR(vshrq_n_s32, int32x4_t, int, 4, (int32_t)host_shift(a[i], -b))
HOST_SCALAR(vshrq_n_u32, uint32x4_t, int, 4, (uint32_t)host_shift(a[i], -b))
HOST_SCALAR(vrshrq_n_s32, int32x4_t, int, 4, (int32_t)host_round_shift(a[i], -b))
HOST_SCALAR(vrshrq_n_u32, uint32x4_t, int, 4, (uint32_t)host_round_shift(a[i], -b))
HOST_SCALAR(vrshlq_n_s32, int32x4_t, int32_t, 4, host_wrap(host_round_shift(a[i], host_bits(b))))
HOST_BINARY(vrshlq_s32, int32x4_t, 4, host_wrap(host_round_shift(a[i], host_bits(b[i]))))
HOST_SCALAR(vqshlq_n_s16, int16x8_t, int, 8, (int16_t)host_saturate(host_shift(a[i], b), 16))
HOST_SCALAR(vqshlq_n_s32, int32x4_t, int, 4, (int32_t)host_saturating_shift(a[i], b))
HOST_SCALAR(vqshlq_r_s32, int32x4_t, int32_t, 4, (int32_t)host_saturating_shift(a[i], host_bits(b)))

/* b to the left, and a's bits below. */
static inline int32x4_t vsliq_n_s32(int32x4_t a, int32x4_t b, int shift)
    HOST_LANES(4, int32x4_t, (int32_t)((uint32_t)b[i] << shift | ((uint32_t)a[i] & ((1u << shift) - 1u))))

/* ---- products -------------------------------------------------------------------------------------------------------------- */

HOST_BINARY(vmulq_s32, int32x4_t, 4, host_wrap((int64_t)a[i] * b[i]))
HOST_SCALAR(vmulq_n_s32, int32x4_t, int32_t, 4, host_wrap((int64_t)a[i] * b))
HOST_SCALAR(vmulq_n_u16, uint16x8_t, uint16_t, 8, (uint16_t)((uint32_t)a[i] * b))
HOST_BINARY(vmulhq_s32, int32x4_t, 4, (int32_t)(((int64_t)a[i] * b[i]) >> 32))
HOST_BINARY(vmulhq_u32, uint32x4_t, 4, (uint32_t)(((uint64_t)a[i] * b[i]) >> 32))
HOST_BINARY(vqrdmulhq_s32, int32x4_t, 4, host_doubled_high(a[i], b[i], (int64_t)1 << 31))
HOST_SCALAR(vqrdmulhq_n_s32, int32x4_t, int32_t, 4, host_doubled_high(a[i], b, (int64_t)1 << 31))

static inline int32x4_t vqrdmulhq_m_n_s32(int32x4_t inactive, int32x4_t a, int32_t b, mve_pred16_t p)
{
    return vpselq_s32(vqrdmulhq_n_s32(a, b), inactive, p);
}

static inline int32x4_t vqdmlahq_n_s32(int32x4_t addend, int32x4_t a, int32_t b)
    HOST_LANES(4, int32x4_t, host_doubled_high(a[i], b, (int64_t)((uint64_t)addend[i] << 32)))
static inline int32x4_t vmlaq_n_s32(int32x4_t addend, int32x4_t a, int32_t b)
    HOST_LANES(4, int32x4_t, host_wrap((int64_t)a[i] * b + addend[i]))
static inline int32x4_t vmlasq_n_s32(int32x4_t a, int32x4_t b, int32_t addend)
    HOST_LANES(4, int32x4_t, host_wrap((int64_t)a[i] * b[i] + addend))
static inline int32x4_t vmullbq_int_s16(int16x8_t a, int16x8_t b) HOST_LANES(4, int32x4_t, a[2 * i] * b[2 * i])
static inline int32x4_t vmulltq_int_s16(int16x8_t a, int16x8_t b) HOST_LANES(4, int32x4_t, a[2 * i + 1] * b[2 * i + 1])

/* ---- widths: bottom lanes are those with even numbers, top lanes those with odd ones ----------------------------------------- */

HOST_CONVERT(vmovlbq_s16, int32x4_t, int16x8_t, 4, a[2 * i])
HOST_CONVERT(vmovltq_s16, int32x4_t, int16x8_t, 4, a[2 * i + 1])

#define HOST_NARROW(name, top, expression) \
    static inline int16x8_t name(int16x8_t a, int32x4_t b) \
    { \
        for (int i = 0; i < 4; i++) { \
            a[2 * i + (top)] = (int16_t)(expression); \
        } \
        return a; \
    }

HOST_NARROW(vmovnbq_s32, 0, b[i])
HOST_NARROW(vmovntq_s32, 1, b[i])
HOST_NARROW(vqmovnbq_s32, 0, host_saturate(b[i], 16))
HOST_NARROW(vqmovntq_s32, 1, host_saturate(b[i], 16))

/* ---- one number from all lanes --------------------------------------------------------------------------------------------- */

#define HOST_PRODUCTS(name, vector, lanes) \
    static inline int32_t name##aq_##vector(int32_t sum, HOST_VECTOR_##vector a, HOST_VECTOR_##vector b) \
    { \
        for (int i = 0; i < (lanes); i++) { \
            sum = host_wrap((int64_t)sum + a[i] * b[i]); \
        } \
        return sum; \
    } \
    static inline int32_t name##q_##vector(HOST_VECTOR_##vector a, HOST_VECTOR_##vector b) \
    { \
        return name##aq_##vector(0, a, b); \
    }
#define HOST_VECTOR_s8 int8x16_t
#define HOST_VECTOR_s16 int16x8_t

HOST_PRODUCTS(vmladav, s8, 16)
HOST_PRODUCTS(vmladav, s16, 8)

static inline int64_t vmlaldavaq_s16(int64_t sum, int16x8_t a, int16x8_t b)
{
    for (int i = 0; i < 8; i++) {
        sum = (int64_t)((uint64_t)sum + (uint64_t)(int64_t)(a[i] * b[i]));
    }
    return sum;
}

static inline int32_t vaddvaq_s8(int32_t sum, int8x16_t a)
{
    return vmladavaq_s8(sum, a, vdupq_n_s8(1));
}

static inline uint32_t vaddvaq_p_u32(uint32_t sum, uint32x4_t a, mve_pred16_t p)
{
    for (int i = 0; i < 4; i++) {
        sum += HOST_HAS(p, i, 4) ? a[i] : 0;
    }
    return sum;
}

#define HOST_LARGEST(name, vector, scalar, lanes) \
    static inline scalar name(scalar largest, vector a, mve_pred16_t p) \
    { \
        for (int i = 0; i < (lanes); i++) { \
            largest = HOST_HAS(p, i, lanes) && a[i] > largest ? a[i] : largest; \
        } \
        return largest; \
    }

HOST_LARGEST(vmaxvq_p_s8, int8x16_t, int8_t, 16)
HOST_LARGEST(vmaxvq_p_s32, int32x4_t, int32_t, 4)
HOST_LARGEST(vmaxvq_p_u32, uint32x4_t, uint32_t, 4)

static inline int32_t vmaxvq_s32(int32_t largest, int32x4_t a)
{
    return vmaxvq_p_s32(largest, a, HOST_ALL);
}

static inline uint32_t vmaxvq_u32(uint32_t largest, uint32x4_t a)
{
    return vmaxvq_p_u32(largest, a, HOST_ALL);
}

/* ---- floats ---------------------------------------------------------------------------------------------------------------- */

HOST_BINARY(vaddq_f32, float32x4_t, 4, a[i] + b[i])
HOST_SCALAR(vaddq_n_f32, float32x4_t, float, 4, a[i] + b)
HOST_BINARY(vsubq_f32, float32x4_t, 4, a[i] - b[i])
HOST_BINARY(vmulq_f32, float32x4_t, 4, a[i] * b[i])
HOST_SCALAR(vmulq_n_f32, float32x4_t, float, 4, a[i] * b)
HOST_UNARY(vabsq_f32, float32x4_t, 4, fabsf(a[i]))
HOST_BINARY(vmaxnmq_f32, float32x4_t, 4, host_maximum(a[i], b[i]))
HOST_BINARY(vminnmq_f32, float32x4_t, 4, host_minimum(a[i], b[i]))
HOST_CONVERT(vcvtq_f32_s32, float32x4_t, int32x4_t, 4, (float)a[i])
HOST_CONVERT(vcvtq_s32_f32, int32x4_t, float32x4_t, 4, host_from_float(a[i]))

/* GCC has this type on machines with SSE2, Clang since 15. */
#ifdef __FLT16_MAX__
typedef _Float16 float16_t;
typedef _Float16 float16x8_t __attribute__((vector_size(16)));

HOST_DUPLICATE(vdupq_n_f16, float16x8_t, float16_t, 8)
HOST_REINTERPRET(vreinterpretq_f16_u16, float16x8_t, uint16x8_t)
HOST_REINTERPRET(vreinterpretq_u16_f16, uint16x8_t, float16x8_t)
HOST_BINARY(vaddq_f16, float16x8_t, 8, (float16_t)(a[i] + b[i]))
HOST_BINARY(vmulq_f16, float16x8_t, 8, (float16_t)(a[i] * b[i]))
HOST_BINARY(vmaxnmq_f16, float16x8_t, 8, (float16_t)host_maximum((float)a[i], (float)b[i]))
HOST_BINARY(vminnmq_f16, float16x8_t, 8, (float16_t)host_minimum((float)a[i], (float)b[i]))
#endif

#endif
