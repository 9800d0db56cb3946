#include "wav.h"

#include <string.h>

#include "log_mel.h"

#define FORMAT_SIZE 16u /* of the part of the chunk "fmt " that all formats have */
#define FORMAT_PCM 1u

static uint32_t little_endian(const uint8_t *bytes, uint32_t count)
{
    uint32_t value = 0;

    while (count-- > 0) {
        value = value << 8 | bytes[count];
    }
    return value;
}

static bool read_bytes(FILE *file, uint8_t *bytes, uint32_t count)
{
    return fread(bytes, 1, count, file) == count;
}

/* Reads on instead of seeking: a chunk may claim to be longer than the file, and than a long can say. */
static bool skip(FILE *file, uint32_t count)
{
    uint8_t bytes[64];

    while (count > 0) {
        const uint32_t part = count < sizeof bytes ? count : (uint32_t)sizeof bytes;

        if (!read_bytes(file, bytes, part)) {
            return false;
        }
        count -= part;
    }
    return true;
}

/* Looks at the fields of the chunk "fmt ". */
static bool check_format(wav_reader *wav, const uint8_t *format, const char *name)
{
    const uint32_t code = little_endian(format, 2);
    const uint32_t channels = little_endian(format + 2, 2);
    const uint32_t rate = little_endian(format + 4, 4);
    const uint32_t bits = little_endian(format + 14, 2);

    if (code == FORMAT_PCM && channels == 1 && rate == LOG_MEL_RATE && bits == 16) {
        return true;
    }
    snprintf(wav->problem, sizeof wav->problem,
             "%.40s: must be PCM (format 1), 1 channel, %u Hz, 16 bits; is format %u, %u channels, %u Hz, %u bits",
             name, (unsigned)LOG_MEL_RATE, (unsigned)code, (unsigned)channels, (unsigned)rate, (unsigned)bits);
    return false;
}

/* Goes to the first sample. */
static bool find_sound(wav_reader *wav, const char *name)
{
    uint8_t bytes[FORMAT_SIZE];
    bool has_format = false;

    if (!read_bytes(wav->file, bytes, 12) || memcmp(bytes, "RIFF", 4) != 0 || memcmp(bytes + 8, "WAVE", 4) != 0) {
        snprintf(wav->problem, sizeof wav->problem, "%.40s: is no WAV file", name);
        return false;
    }
    while (read_bytes(wav->file, bytes, 8)) {
        uint32_t size = little_endian(bytes + 4, 4);

        if (memcmp(bytes, "data", 4) == 0 && has_format) {
            wav->left = size;
            return true;
        }
        if (memcmp(bytes, "fmt ", 4) == 0 && size >= FORMAT_SIZE) {
            if (!read_bytes(wav->file, bytes, FORMAT_SIZE)) {
                break;
            }
            if (!check_format(wav, bytes, name)) {
                return false;
            }
            has_format = true;
            size -= FORMAT_SIZE;
        }
        if (!skip(wav->file, size) || !skip(wav->file, size % 2)) { /* chunks begin at even places */
            break;
        }
    }
    snprintf(wav->problem, sizeof wav->problem, "%.40s: has no sound: it ends before a chunk \"data\" behind a \"fmt \"",
             name);
    return false;
}

bool wav_open(wav_reader *wav, const char *name)
{
    wav->file = fopen(name, "rb");
    if (wav->file == NULL) {
        snprintf(wav->problem, sizeof wav->problem, "%.40s: cannot be read", name);
        return false;
    }
    if (!find_sound(wav, name)) {
        wav_close(wav);
        return false;
    }
    return true;
}

uint32_t wav_read(wav_reader *wav, int16_t *samples, uint32_t count)
{
    uint8_t bytes[2];
    uint32_t done = 0;

    while (done < count && wav->left >= sizeof bytes && read_bytes(wav->file, bytes, sizeof bytes)) {
        const uint32_t value = little_endian(bytes, sizeof bytes);

        samples[done++] = (int16_t)(value < 0x8000 ? (int32_t)value : (int32_t)value - 0x10000);
        wav->left -= (uint32_t)sizeof bytes;
    }
    return done;
}

void wav_close(wav_reader *wav)
{
    fclose(wav->file);
    wav->file = NULL;
}
