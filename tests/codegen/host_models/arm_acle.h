/*
 * The intrinsics of the DSP instructions in plain C, so that the C of Cortex-M4, M7 and M33 runs on this machine. Results follow the
 * Arm C Language Extensions and the Armv7-M reference manual: sums wrap round unless an instruction saturates. The GE flags, which
 * __sel reads, are modelled; the Q flag, which generated code never reads, is not.
 */
#ifndef HOST_MODEL_ARM_ACLE_H
#define HOST_MODEL_ARM_ACLE_H

#include <stdint.h>

typedef int32_t int8x4_t;
typedef int32_t int16x2_t;
typedef uint32_t uint8x4_t;
typedef uint32_t uint16x2_t;

/* All ones in bytes whose GE flag is set. Files of one program need not share it: a flag is read right behind where it is set. */
static uint32_t host_ge_bytes;

static inline int32_t host_bottom(int32_t word)
{
    return (int16_t)(uint16_t)(uint32_t)word;
}

static inline int32_t host_top(int32_t word)
{
    return (int16_t)(uint16_t)((uint32_t)word >> 16);
}

static inline int32_t host_pair(int32_t bottom, int32_t top)
{
    return (int32_t)(((uint32_t)bottom & 0xffffu) | (uint32_t)top << 16);
}

/* The pair of two results of 17 bits; a half's flags are set where its result is not negative. */
static inline int32_t host_flagged_pair(int32_t bottom, int32_t top)
{
    host_ge_bytes = (bottom >= 0 ? 0x0000ffffu : 0) | (top >= 0 ? 0xffff0000u : 0);
    return host_pair(bottom, top);
}

static inline int32_t host_wrapped(int64_t sum)
{
    return (int32_t)(uint32_t)(uint64_t)sum;
}

static inline int32_t __sxtb16(int32_t bytes)
{
    return host_pair((int8_t)(uint8_t)(uint32_t)bytes, (int8_t)(uint8_t)((uint32_t)bytes >> 16));
}

static inline int32_t __sadd16(int32_t a, int32_t b)
{
    return host_flagged_pair(host_bottom(a) + host_bottom(b), host_top(a) + host_top(b));
}

static inline int32_t __ssub16(int32_t a, int32_t b)
{
    return host_flagged_pair(host_bottom(a) - host_bottom(b), host_top(a) - host_top(b));
}

static inline int32_t __sasx(int32_t a, int32_t b)
{
    return host_flagged_pair(host_bottom(a) - host_top(b), host_top(a) + host_bottom(b));
}

static inline int32_t __ssax(int32_t a, int32_t b)
{
    return host_flagged_pair(host_bottom(a) + host_top(b), host_top(a) - host_bottom(b));
}

static inline int32_t __shadd16(int32_t a, int32_t b)
{
    return host_pair((host_bottom(a) + host_bottom(b)) >> 1, (host_top(a) + host_top(b)) >> 1);
}

static inline int32_t __shsub16(int32_t a, int32_t b)
{
    return host_pair((host_bottom(a) - host_bottom(b)) >> 1, (host_top(a) - host_top(b)) >> 1);
}

static inline int32_t __ssub8(int32_t a, int32_t b)
{
    uint32_t result = 0;

    host_ge_bytes = 0;
    for (int shift = 0; shift < 32; shift += 8) {
        const int32_t difference = (int8_t)(uint8_t)((uint32_t)a >> shift) - (int8_t)(uint8_t)((uint32_t)b >> shift);

        result |= ((uint32_t)difference & 0xffu) << shift;
        host_ge_bytes |= difference >= 0 ? (uint32_t)0xff << shift : 0;
    }
    return (int32_t)result;
}

static inline uint32_t __sel(uint32_t a, uint32_t b)
{
    return (a & host_ge_bytes) | (b & ~host_ge_bytes);
}

static inline int32_t __qadd(int32_t a, int32_t b)
{
    const int64_t sum = (int64_t)a + b;

    return sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : (int32_t)sum;
}

static inline int32_t __smlabb(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped((int64_t)host_bottom(a) * host_bottom(b) + sum);
}

static inline int32_t __smlabt(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped((int64_t)host_bottom(a) * host_top(b) + sum);
}

static inline int32_t __smlatb(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped((int64_t)host_top(a) * host_bottom(b) + sum);
}

static inline int32_t __smlatt(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped((int64_t)host_top(a) * host_top(b) + sum);
}

static inline int32_t __smlawb(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped(((int64_t)a * host_bottom(b) >> 16) + sum);
}

static inline int32_t __smlawt(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped(((int64_t)a * host_top(b) >> 16) + sum);
}

static inline int32_t __smlad(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped((int64_t)host_bottom(a) * host_bottom(b) + (int64_t)host_top(a) * host_top(b) + sum);
}

static inline int32_t __smladx(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped((int64_t)host_bottom(a) * host_top(b) + (int64_t)host_top(a) * host_bottom(b) + sum);
}

static inline int32_t __smlsd(int32_t a, int32_t b, int32_t sum)
{
    return host_wrapped((int64_t)host_bottom(a) * host_bottom(b) - (int64_t)host_top(a) * host_top(b) + sum);
}

static inline int64_t __smlald(int32_t a, int32_t b, int64_t sum)
{
    const int64_t products = (int64_t)host_bottom(a) * host_bottom(b) + (int64_t)host_top(a) * host_top(b);

    return (int64_t)((uint64_t)sum + (uint64_t)products);
}

#endif
