/* Matrix products with packed weights, by weight format; compiled.py packs the weights.
 *
 * Every sum has one order, whatever the number of rows in the call: a row's result is the same bits in any company.
 */

#ifndef OSCINE_PRODUCTS_H
#define OSCINE_PRODUCTS_H

#include "vectors.h"

#define TILE 64 /* outputs that lie side by side in packed weights: [tile][input][TILE] */

enum weight_format { FLOAT32, FLOAT16 };

struct matrix {
    const void *weights; /* NULL: the map leaves its input as it is */
    const float *bias;   /* NULL: none */
    float factor;        /* a power of two, what the stored weights were divided by */
    int32_t format, num_in, num_out;
};

static inline int padded(int size) { return (size + TILE - 1) / TILE * TILE; }

/* y has rows of padded(num_out); ROWS and FORMAT are constants where this is inlined. */

static inline __attribute__((always_inline)) void
product_tile(const int ROWS, const int FORMAT, const struct matrix *m, int tile, const float *x, float *y) {
    const int num_in = m->num_in, width = padded(m->num_out);
    const size_t start = (size_t)tile * num_in * TILE;
    lanes sums[4][TILE / LANES] = {{{0}}};
    for (int k = 0; k < num_in; k++) {
#pragma GCC unroll 4
        for (int j = 0; j < TILE / LANES; j++) {
            const size_t at = start + (size_t)k * TILE + j * LANES;
            const lanes weights = FORMAT == FLOAT16 ? widen((const uint16_t *)m->weights + at)
                                                    : load((const float *)m->weights + at);
#pragma GCC unroll 4
            for (int row = 0; row < ROWS; row++) sums[row][j] += weights * x[(size_t)row * num_in + k];
        }
    }
    for (int row = 0; row < ROWS; row++)
        for (int j = 0; j < TILE / LANES; j++) {
            const int at = tile * TILE + j * LANES;
            lanes sum = sums[row][j] * m->factor;
            if (m->bias) sum += load(m->bias + at);
            store(y + (size_t)row * width + at, sum);
        }
}

#define PRODUCT(ROWS)                                                                                                  \
    for (; row + ROWS <= n; row += ROWS) {                                                                             \
        const float *from = x + (size_t)row * m->num_in;                                                               \
        float *to = y + (size_t)row * padded(m->num_out);                                                              \
        for (int tile = 0; tile < tiles; tile++)                                                                       \
            m->format == FLOAT16 ? product_tile(ROWS, FLOAT16, m, tile, from, to)                                      \
                                 : product_tile(ROWS, FLOAT32, m, tile, from, to);                                     \
    }

/* x [n][num_in] → y [n][padded(num_out)] */
static inline void product(const struct matrix *m, int n, const float *x, float *y) {
    const int tiles = padded(m->num_out) / TILE;
    int row = 0;
    PRODUCT(4)
    PRODUCT(2)
    PRODUCT(1)
}

#endif
