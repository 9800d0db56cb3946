/*
 * The driver's functions with the signatures of the Ethos-U core driver 0.16, for tests that have none.
 * Facts: https://gitlab.arm.com/artificial-intelligence/ethos-u/ethos-u-core-driver, include/ethosu_driver.h
 */
#ifndef STUB_ETHOSU_DRIVER_H
#define STUB_ETHOSU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

struct ethosu_driver {
    int reserved;
};

struct ethosu_driver *ethosu_reserve_driver(void);

void ethosu_release_driver(struct ethosu_driver *drv);

int ethosu_invoke_v3(struct ethosu_driver *drv, const void *custom_data_ptr, const int custom_data_size,
                     const uint64_t *base_addr, const size_t *base_addr_size, const int num_base_addr,
                     void *user_arg);

#endif
