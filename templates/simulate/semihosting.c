/* Arm semihosting (ARM IHI 0097): files and console of the machine that runs the simulator. */
#include <stdint.h>

#include "simulate.h"

#define SYS_OPEN 0x01
#define SYS_WRITE0 0x04
#define SYS_WRITE 0x05
#define SYS_READ 0x06
#define SYS_SEEK 0x0A
#define SYS_EXIT_EXTENDED 0x20
#define ADP_STOPPED_APPLICATION_EXIT 0x20026u

static int32_t semihosting_call(int32_t operation, const void *argument)
{
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void semihosting_print(const char *text)
{
    (void)semihosting_call(SYS_WRITE0, text);
}

void semihosting_exit(int32_t status)
{
    const uint32_t block[2] = {ADP_STOPPED_APPLICATION_EXIT, (uint32_t)status};
    (void)semihosting_call(SYS_EXIT_EXTENDED, block);
    for (;;) {
    }
}

static void fail(const char *message)
{
    semihosting_print(message);
    semihosting_exit(1);
}

int32_t semihosting_open(const char *path, uint32_t mode)
{
    uint32_t length = 0;
    while (path[length] != '\0') {
        length++;
    }
    const uint32_t block[3] = {(uint32_t)(uintptr_t)path, mode, length};
    const int32_t file = semihosting_call(SYS_OPEN, block);
    if (file < 0) {
        fail("harness: cannot open a file of the simulation\n");
    }
    return file;
}

void semihosting_write(int32_t file, const void *data, uint32_t size)
{
    const uint32_t block[3] = {(uint32_t)file, (uint32_t)(uintptr_t)data, size};
    if (size != 0u && semihosting_call(SYS_WRITE, block) != 0) {
        fail("harness: cannot write the results\n");
    }
}

void semihosting_seek(int32_t file, uint32_t position)
{
    const uint32_t block[2] = {(uint32_t)file, position};
    if (semihosting_call(SYS_SEEK, block) != 0) {
        fail("harness: cannot seek in the results file\n");
    }
}

void semihosting_read(int32_t file, void *data, uint32_t size)
{
    const uint32_t block[3] = {(uint32_t)file, (uint32_t)(uintptr_t)data, size};
    if (size != 0u && semihosting_call(SYS_READ, block) != 0) {
        fail("harness: the input file is too short\n");
    }
}
