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
    self->skip = self->top;
    self->space = self->size;
    self->done = 0;
    memset(self->sums, 0, sizeof *self->sums * self->side * self->channels);
}

/* Red, green and blue of a pixel in 0 ... 255: the high bits again below the low ones, so that the brightest is
 * 255. */
static inline void unpack(const uint8_t *pixel, uint32_t values[3])
{
    const uint32_t bits = (uint32_t)pixel[0] << 8 | pixel[1];
    const uint32_t red = bits >> 11;
    const uint32_t green = bits >> 5 & 63u;
    const uint32_t blue = bits & 31u;

    values[0] = red << 3 | red >> 2;
    values[1] = green << 2 | green >> 4;
    values[2] = blue << 3 | blue >> 2;
}

/* The line becomes the row's part of the square, scaled to the width of the picture, in shades of grey.
 * A pixel of the square, `side` long, lies in one of the picture's or in two, which are `size` long. */
static void scale_grey(const scaler *self, const uint8_t *pixels)
{
    const uint32_t side = self->side;
    const uint32_t size = self->size;
    uint32_t *line = self->line;
    uint32_t sum = 0;
    uint32_t space = size; /* that is left of the picture's pixel at `line` */

    for (uint32_t x = 0; x < size; x++) {
        uint32_t rgb[3];

        unpack(&pixels[2u * x], rgb);
        const uint32_t grey = (77u * rgb[0] + 150u * rgb[1] + 29u * rgb[2] + 128u) >> 8;

        if (space > side) {
            sum += side * grey;
            space -= side;
        } else {
            *line++ = sum + space * grey;
            sum = (side - space) * grey;
            space += size - side;
        }
    }
}

/* The same in colours. */
static void scale_rgb(const scaler *self, const uint8_t *pixels)
{
    const uint32_t side = self->side;
    const uint32_t size = self->size;
    uint32_t *line = self->line;
    uint32_t red = 0, green = 0, blue = 0;
    uint32_t space = size;

    for (uint32_t x = 0; x < size; x++) {
        uint32_t rgb[3];

        unpack(&pixels[2u * x], rgb);
        if (space > side) {
            red += side * rgb[0];
            green += side * rgb[1];
            blue += side * rgb[2];
            space -= side;
        } else {
            *line++ = red + space * rgb[0];
            *line++ = green + space * rgb[1];
            *line++ = blue + space * rgb[2];
            red = (side - space) * rgb[0];
            green = (side - space) * rgb[1];
            blue = (side - space) * rgb[2];
            space += size - side;
        }
    }
}

/* The line is added to the next row of the picture, and that row finished where it ends within the line:
 * down as across. */
static void scale_down(scaler *self)
{
    const uint32_t count = self->side * self->channels;
    const uint32_t area = self->size * self->size;
    const uint32_t side = self->side;
    const uint32_t space = self->space;
    const uint32_t *const line = self->line;
    uint32_t *const sums = self->sums;

    if (space > side) {
        for (uint32_t i = 0; i < count; i++) {
            sums[i] += side * line[i];
        }
        self->space -= side;
    } else {
        uint8_t *const row = &self->picture[self->done * count];

        for (uint32_t i = 0; i < count; i++) {
            row[i] = (uint8_t)((sums[i] + space * line[i] + area / 2u) / area);
            sums[i] = (side - space) * line[i];
        }
        self->space += self->size - side;
        self->done++;
    }
}

uint32_t scaler_push(scaler *self, const uint8_t *pixels)
{
    if (self->skip > 0) {
        self->skip--;
    } else if (self->done < self->side) {
        pixels += 2u * self->left;
        if (self->channels == 1) {
            scale_grey(self, pixels);
        } else {
            scale_rgb(self, pixels);
        }
        scale_down(self);
    }
    return self->done;
}
