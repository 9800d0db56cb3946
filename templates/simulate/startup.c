/* Reset and faults of the simulated boards. No interrupt is enabled. */
#include <stdint.h>

#include "simulate.h"

#define SCB_CCR (*(volatile uint32_t *)0xE000ED14u)
#define SCB_CFSR (*(volatile uint32_t *)0xE000ED28u)
#define SCB_HFSR (*(volatile uint32_t *)0xE000ED2Cu)
#define SCB_MMFAR (*(volatile uint32_t *)0xE000ED34u)
#define SCB_BFAR (*(volatile uint32_t *)0xE000ED38u)
#define SCB_CPACR (*(volatile uint32_t *)0xE000ED88u)
#define SAU_SFSR (*(volatile uint32_t *)0xE000EDE4u)

#define CCR_UNALIGN_TRP (1u << 3)
#define CCR_DIV_0_TRP (1u << 4)
#define CCR_LOB (1u << 19)
#define CPACR_CP10_CP11_FULL (0xFu << 20)

extern const uint8_t data_load[]; /* at any address, because it follows constants of any size */
extern uint8_t data_start[];
extern uint8_t data_end[];
extern uint32_t bss_start[];
extern uint32_t bss_end[];

int main(void);
void reset_handler(void);
void fault_handler(void);
void report_fault(const uint32_t *frame);

void reset_handler(void)
{
    uint32_t ccr = SCB_CCR | CCR_DIV_0_TRP;
#if !defined(__ARM_FEATURE_UNALIGNED)
    /*
     * The compiler was told that unaligned accesses fault. On Armv6-M, all of them fault; on the
     * later core that runs this code, they must also fault.
     */
    ccr |= CCR_UNALIGN_TRP;
#endif
#if defined(__ARM_FEATURE_MVE)
    ccr |= CCR_LOB; /* low-overhead loops: without it, LE falls back to a plain branch */
#endif
    SCB_CCR = ccr;
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    SCB_CPACR |= CPACR_CP10_CP11_FULL;
#endif
#if defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
    __asm__ volatile("msr msplim, %0" : : "r"(stack_bottom)); /* an overflow faults; earlier cores lack this */
#endif
    __asm__ volatile("dsb\n\tisb" ::: "memory");

    const uint8_t *source = data_load;
    for (uint8_t *byte = data_start; byte < data_end; byte++) {
        *byte = *source++;
    }
    for (uint32_t *word = bss_start; word < bss_end; word++) {
        *word = 0u;
    }
    semihosting_exit(main());
}

static void write_field(const char *label, uint32_t value)
{
    char digits[9];
    for (uint32_t i = 0; i < 8u; i++) {
        digits[i] = "0123456789abcdef"[(value >> (28u - 4u * i)) & 0xFu];
    }
    digits[8] = '\0';
    semihosting_print(label);
    semihosting_print(digits);
}

/* frame: registers that the core pushed on exception entry: r0-r3, r12, lr, pc, xpsr. */
__attribute__((used)) void report_fault(const uint32_t *frame)
{
    if (frame < stack_bottom || frame >= stack_top) {
        semihosting_print("harness: " STACK_OVERFLOW);
        semihosting_exit(1);
    }
    uint32_t exception;
    __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
    write_field("fault: exception=", exception);
    write_field(" cfsr=", SCB_CFSR);
    write_field(" hfsr=", SCB_HFSR);
    write_field(" mmfar=", SCB_MMFAR);
    write_field(" bfar=", SCB_BFAR);
#if defined(__ARM_ARCH) && __ARM_ARCH >= 8
    write_field(" sfsr=", SAU_SFSR);
#endif
    write_field(" lr=", frame[5]);
    write_field(" pc=", frame[6]);
    semihosting_print("\n");
    semihosting_exit(1);
}

__attribute__((naked)) void fault_handler(void)
{
    /*
     * The old stack may be exhausted. The report does not return, so it can use the stack from the
     * top again.
     */
    __asm__ volatile("mov r0, sp\n\t"
                     "ldr r1, =stack_top\n\t"
                     "mov sp, r1\n\t"
                     "ldr r2, =report_fault\n\t"
                     "bx r2\n\t"
                     ".ltorg");
}

typedef union {
    uint32_t *stack;
    void (*handler)(void);
} vector;

/* Only the 16 system vectors, because no external interrupt is enabled. */
__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {.stack = stack_top},         {.handler = reset_handler}, {.handler = fault_handler},
    {.handler = fault_handler},   {.handler = fault_handler}, {.handler = fault_handler},
    {.handler = fault_handler},   {.handler = fault_handler}, {.handler = fault_handler},
    {.handler = fault_handler},   {.handler = fault_handler}, {.handler = fault_handler},
    {.handler = fault_handler},   {.handler = fault_handler}, {.handler = fault_handler},
    {.handler = fault_handler},
};
