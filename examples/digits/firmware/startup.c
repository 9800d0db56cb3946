/* Start-up for a Cortex-M4 under GCC: the vector table, and what must be done before main(). */

#include <stdint.h>
#include <stdlib.h>

/* Set by mps2-an386.ld. */
extern uint32_t data_start[], data_end[], data_load[], bss_start[], bss_end[], stack_top[];

#define CPACR (*(volatile uint32_t *)0xE000ED88u) /* Coprocessor Access Control Register */

int main(void);
void initialise_monitor_handles(void); /* newlib: opens stdin, stdout and stderr over semihosting */
void Reset_Handler(void);
void Default_Handler(void);

void Reset_Handler(void)
{
    const uint32_t *source = data_load;

    CPACR |= 0xFu << 20; /* full access to the FPU */
    __asm__ volatile("dsb\n isb" ::: "memory");
    for (uint32_t *word = data_start; word < data_end; word++) {
        *word = *source++;
    }
    for (uint32_t *word = bss_start; word < bss_end; word++) {
        *word = 0;
    }
    initialise_monitor_handles();
    exit(main());
}

/* A fault or an interrupt that nobody handles: leave the simulator with an error. */
void Default_Handler(void)
{
    _Exit(EXIT_FAILURE);
}

struct vector_table {
    uint32_t *initial_stack;
    void (*reset)(void);
    void (*exceptions[14])(void); /* exceptions 2 to 15; this firmware enables no interrupts */
};

__attribute__((section(".vectors"), used)) static const struct vector_table vectors = {
    stack_top,
    Reset_Handler,
    {Default_Handler, Default_Handler, Default_Handler, Default_Handler, Default_Handler, Default_Handler,
     Default_Handler, Default_Handler, Default_Handler, Default_Handler, Default_Handler, Default_Handler,
     Default_Handler, Default_Handler},
};
