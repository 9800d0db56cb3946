/* All lengths are integers if a pixel of the square is `side` long and one of the picture `size`: both the
 * square's and the picture's sides are then side * size. A mean is a sum, weighted by such lengths down and
 * across, over size * size. */

#include "scaler.h"

#include <string.h>

void scaler_init(scaler *self, uint32_t width, uint32_t height, uint32_t side, uint32_t channels,
                 uint32_t *words)
{
    self->side = side;
    self->channels = channels;
    self->size = width < height ? width : height;
    self->left = (width - self->size) / 2u;
    self->top = (height - self->size) / 2u;
    self->line = words;
    self->sums = words + side * channels;
}

void scaler_begin(scaler *self, uint8_t *picture)
{
    self->picture = picture;
    self->row = 0;
    self->done = 0;
    memset(self->sums, 0, sizeof *self->sums * self->side * self->channels);
}

/* The values of a pixel in 0 ... 255: the high bits again below the low ones, so that the brightest is 255. */
static void unpack(const uint8_t *pixel, uint32_t channels, uint32_t values[3])
{
    const uint32_t bits = (uint32_t)pixel[0] << 8 | pixel[1];
    const uint32_t red = bits >> 11;
    const uint32_t green = bits >> 5 & 63u;
    const uint32_t blue = bits & 31u;

    values[0] = red << 3 | red >> 2;
    values[1] = green << 2 | green >> 4;
    values[2] = blue << 3 | blue >> 2;
    if (channels == 1) {
        values[0] = (77u * values[0] + 150u * values[1] + 29u * values[2] + 128u) >> 8;
    }
}

/* self->line becomes the row's part of the square, scaled to the width of the picture. */
static void scale_across(scaler *self, const uint8_t *pixels)
{
    const uint32_t channels = self->channels;
    uint32_t *sums = self->line;
    uint32_t space = self->size; /* that is left of the picture's pixel at `sums` */

    memset(self->line, 0, sizeof *self->line * self->side * channels);
    for (uint32_t x = 0; x < self->size; x++) {
        uint32_t length = self->side; /* that is left of the square's pixel */
        uint32_t values[3];

        unpack(&pixels[2u * (self->left + x)], channels, values);
        while (length > 0) {
            const uint32_t share = length < space ? length : space;

            for (uint32_t channel = 0; channel < channels; channel++) {
                sums[channel] += share * values[channel];
            }
            length -= share;
            space -= share;
            if (space == 0) {
                sums += channels;
                space = self->size;
            }
        }
    }
}

/* self->sums, all of the next row of the picture, goes into the picture. */
static void finish_row(scaler *self)
{
    const uint32_t count = self->side * self->channels;
    const uint32_t area = self->size * self->size;
    uint8_t *row = &self->picture[self->done * count];

    for (uint32_t i = 0; i < count; i++) {
        row[i] = (uint8_t)((self->sums[i] + area / 2u) / area);
        self->sums[i] = 0;
    }
    self->done++;
}

uint32_t scaler_push(scaler *self, const uint8_t *pixels)
{
    const uint32_t count = self->side * self->channels;
    const uint32_t row = self->row++;

    if (row < self->top || self->done == self->side) {
        return self->done;
    }
    /* Down as across: the row is `side` high; the next row of the picture ends at (done + 1) * size. */
    uint32_t at = (row - self->top) * self->side;
    const uint32_t end = at + self->side;

    scale_across(self, pixels);
    while (at < end) {
        const uint32_t next = (self->done + 1u) * self->size;
        const uint32_t share = (next < end ? next : end) - at;

        for (uint32_t i = 0; i < count; i++) {
            self->sums[i] += share * self->line[i];
        }
        at += share;
        if (at == next) {
            finish_row(self);
        }
    }
    return self->done;
}
