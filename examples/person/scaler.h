/* Scales the middle square of a camera's frame to a network's picture, row by row as the camera sends them.
 *
 * Each pixel of the picture is the mean of the area that it covers in the frame, computed in integers and
 * rounded once. A row of the frame is needed only while it is pushed: no buffer holds a frame. */
#ifndef SCALER_H
#define SCALER_H

#include <stdint.h>

typedef struct {
    uint32_t side;     /* of the picture, in pixels */
    uint32_t channels; /* of the picture: 3 for RGB, 1 for grey */
    uint32_t size;     /* of the square, in pixels of the frame */
    uint32_t left;     /* where the square begins in the frame */
    uint32_t top;
    uint32_t *line;   /* a row of the square, scaled across */
    uint32_t *sums;   /* of what has come of the next row of the picture */
    uint8_t *picture; /* [side][side][channels] */
    uint32_t skip;    /* how many rows are still to come above the square */
    uint32_t space;   /* that is left of the next row of the picture; a row of the square takes `side` */
    uint32_t done;    /* how many rows of the picture are complete */
} scaler;

/* Memory that a scaler works in, in words. */
#define SCALER_WORDS(side, channels) (2u * (side) * (channels))

/* Prepares for frames of width x height pixels: `side` to 4096 each way. `words` has SCALER_WORDS(side, channels). */
void scaler_init(scaler *self, uint32_t width, uint32_t height, uint32_t side, uint32_t channels,
                 uint32_t *words);

/* Begins a frame, whose picture goes to `picture`. */
void scaler_begin(scaler *self, uint8_t *picture);

/* The next row of the frame: width pixels of RGB565, the high byte of each first.
 * Gives how many rows of the picture are complete; the last pixel is there when the square's last row is. */
uint32_t scaler_push(scaler *self, const uint8_t *pixels);

#endif
