/* What the example takes of Arduino's core, printing to standard output. */
#include <cstdio>

struct Print {
    void begin(unsigned long) {}
    void print(const char *text) { std::fputs(text, stdout); }
    void print(unsigned long value) { std::printf("%lu", value); }
    void println(const char *text) { std::puts(text); }
};
static Print Serial;
static unsigned long micros() { return 0; }
static void delay(unsigned long) {}
