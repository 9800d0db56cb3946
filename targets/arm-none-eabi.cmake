# CMake toolchain file for bare-metal Cortex-M with arm-none-eabi-gcc.
#
#   cmake -DCMAKE_TOOLCHAIN_FILE=targets/arm-none-eabi.cmake -DMICROFOLD_CPU=cortex-m4 ...
#
# MICROFOLD_CPU is the name of a target next to this file, whose compiler flags are used.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MICROFOLD_CPU)

set(MICROFOLD_CPU cortex-m4 CACHE STRING "microfold target of the whole build")
if(NOT EXISTS "${CMAKE_CURRENT_LIST_DIR}/${MICROFOLD_CPU}.toml")
  message(FATAL_ERROR "MICROFOLD_CPU must name a target in ${CMAKE_CURRENT_LIST_DIR}; got '${MICROFOLD_CPU}'")
endif()

file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/${MICROFOLD_CPU}.toml" microfold_flags REGEX "^cpu_flags")
string(REGEX MATCHALL "\"[^\"]+\"" microfold_flags "${microfold_flags}")
string(REPLACE "\"" "" microfold_flags "${microfold_flags}")
string(REPLACE ";" " " microfold_flags "${microfold_flags}")

set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_C_FLAGS_INIT "${microfold_flags} -ffunction-sections -fdata-sections")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-nostartfiles --specs=nano.specs -Wl,--gc-sections")
set(CMAKE_EXECUTABLE_SUFFIX_C .elf)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
