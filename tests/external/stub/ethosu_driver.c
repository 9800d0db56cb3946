/* Runs the command stream of tests/external/vela.py, after it has looked at everything that it is given. */
#include "ethosu_driver.h"

enum { COMMANDS = 37, WEIGHTS = 79, ARENA = 1024, RELU = 64, EXTRA = 512, FIRST = 256, SECOND = 64 };

static struct ethosu_driver driver;

struct ethosu_driver *ethosu_reserve_driver(void)
{
    driver.reserved++;
    return &driver;
}

void ethosu_release_driver(struct ethosu_driver *drv)
{
    drv->reserved--;
}

int ethosu_invoke_v3(struct ethosu_driver *drv, const void *custom_data_ptr, const int custom_data_size,
                     const uint64_t *base_addr, const size_t *base_addr_size, const int num_base_addr,
                     void *user_arg)
{
    static const size_t sizes[7] = {WEIGHTS, ARENA, 0, 32, 7, 9, 9};
    const uint8_t *commands = custom_data_ptr;
    const uint8_t *weights = (const uint8_t *)(uintptr_t)base_addr[0];
    uint8_t *arena = (uint8_t *)(uintptr_t)base_addr[1];
    uint8_t first[9], second[9];
    int i;

    if (drv != &driver || drv->reserved != 1 || user_arg != 0) {
        return -10;
    }
    if (custom_data_size != COMMANDS || (uintptr_t)commands % 16 != 0 || num_base_addr != 7) {
        return -11;
    }
    for (i = 0; i < 7; i++) {
        if (base_addr[i] % 16 != 0 || base_addr_size[i] != sizes[i]) {
            return -20 - i;
        }
    }
    /* Whole cache lines. */
    if (base_addr[1] % 32 != 0 || base_addr[2] != base_addr[1]) {
        return -12;
    }
    if (base_addr[3] - base_addr[1] != RELU || base_addr[4] - base_addr[1] != EXTRA ||
        base_addr[5] - base_addr[1] != FIRST || base_addr[6] - base_addr[1] != SECOND) {
        return -13;
    }
    /* As the NPU does, everything through the address of the arena. */
    for (i = 0; i < 9; i++) {
        first[i] = (uint8_t)(arena[RELU + i] + arena[EXTRA + i % 7]);
        second[i] = (uint8_t)(commands[i] ^ weights[WEIGHTS - 1 - i] ^ arena[RELU + 31 - i]);
    }
    for (i = 0; i < ARENA; i++) {
        arena[i] = 0x5A;
    }
    for (i = 0; i < 9; i++) {
        arena[FIRST + i] = first[i];
        arena[SECOND + i] = second[i];
    }
    return 0;
}
