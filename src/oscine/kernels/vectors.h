/* Vectors of float32 and the sums over them, each in one order whatever the machine.
 *
 * Compiled for several kinds of processor from one source; a vector is 16 floats wide on all of them.
 */

#ifndef OSCINE_VECTORS_H
#define OSCINE_VECTORS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LANES 16

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));

static inline lanes load(const float *x) { return *(const lanes *)x; }

static inline void store(float *x, lanes value) { *(lanes *)x = value; }

/* LANES float16 numbers as float32. */
static inline lanes widen(const uint16_t *x) {
    lanes wide;
#if defined(__AVX512F__)
    wide = (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
#elif defined(__F16C__)
    for (int i = 0; i < LANES; i += 8)
        _mm256_storeu_ps((float *)&wide + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#elif defined(__aarch64__)
    for (int i = 0; i < LANES; i += 4)
        vst1q_f32((float *)&wide + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
#else
    for (int i = 0; i < LANES; i++) {
        _Float16 value;
        memcpy(&value, x + i, sizeof value);
        wide[i] = (float)value;
    }
#endif
    return wide;
}

static inline float sum_of(lanes x) {
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

static inline float dot(const float *a, const float *b, int size) {
    lanes sums = {0};
    int i = 0;
    for (; i + LANES <= size; i += LANES) sums += load(a + i) * load(b + i);
    float sum = sum_of(sums);
    for (; i < size; i++) sum += a[i] * b[i];
    return sum;
}

static inline void add(float *restrict x, const float *restrict y, int size) {
    for (int i = 0; i < size; i++) x[i] += y[i];
}

static inline void rms_norm(const float *x, const float *gain, float eps, int size, float *out) {
    const float scale = 1.0f / sqrtf(dot(x, x, size) / (float)size + eps);
    for (int i = 0; i < size; i++) out[i] = x[i] * scale * gain[i];
}

#endif
