/* Start-up for a Cortex-M4 under GCC: the vector table, and what must be done before main(). */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Set by mps2-an386.ld. */
extern uint32_t data_start[], data_end[], data_load[], bss_start[], bss_end[], stack_top[];

#define MAX_ARGUMENTS 16
#define COMMAND_LINE_SIZE 512

#define CPACR (*(volatile uint32_t *)0xE000ED88u) /* Coprocessor Access Control Register */

int main(int argc, char **argv); /* also where it is defined to take nothing: the calls are the same */
void initialise_monitor_handles(void); /* newlib: opens stdin, stdout and stderr over semihosting */
void Reset_Handler(void);
void Default_Handler(void);

static char command_line[COMMAND_LINE_SIZE];
static char *arguments[MAX_ARGUMENTS + 1];

/* Asks the debugger or simulator for the program's arguments; how many there are. They are separated by spaces. */
static int read_arguments(void)
{
    struct {
        char *text;
        uint32_t size;
    } line = {command_line, sizeof command_line};
    int count = 0;
    register uint32_t operation __asm__("r0") = 0x15; /* SYS_GET_CMDLINE of Arm's semihosting */
    register void *block __asm__("r1") = &line;

    __asm__ volatile("bkpt 0xAB" : "+r"(operation) : "r"(block) : "memory");
    if (operation != 0) {
        return 0;
    }
    for (char *at = strtok(command_line, " "); at != NULL && count < MAX_ARGUMENTS; at = strtok(NULL, " ")) {
        arguments[count++] = at;
    }
    return count;
}

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
    exit(main(read_arguments(), arguments));
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
