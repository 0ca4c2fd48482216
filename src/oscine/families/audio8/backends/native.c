/* A step of a small dense dual-autoregressive model in one call (AUDIO8 spec, sections 3, 6 and 7).
 *
 * The formulas are those of model/, eager.py and runtime/sampling.py, which stay the path to compare with; of a model this
 * small most of a step there is the overhead of calls. native.py describes the structs, packs the weights and calls.
 *
 * Every sum has one order, whatever the number of tokens in the call: a row's result is the same bits in any company.
 * All floats are float32, all ids int64; n tokens are rows of x, each with its cache row and position.
 */

#include <stdlib.h>

#include "layout.h"
#include "products.h"

#define INTERFACE 2 /* native.py asks for the same number */

struct block {
    const float *attention_norm, *ffn_norm;
    const float *q_gain, *k_gain; /* [head_dim], NULL: heads are not normed */
    struct matrix wqkv, wo, w1, w2, w3;
};

struct stack {
    const struct block *blocks;
    const float *turns; /* [position][head_dim / 2][cos, sin] */
    const float *norm;
    float eps;
    int32_t layers, dim, hidden, heads, kv_heads, head_dim;
};

struct model {
    struct stack slow, fast;
    struct matrix semantic, codes, project;
    const float *tokens, *code_tables, *fast_codes; /* embeddings: [vocab][dim], [C * N][dim], [N][fast dim] */
    int64_t semantic_begin, semantic_end, vocab_size, max_positions;
    int32_t num_codebooks, codebook_size, norm_fast_input;
};

/* Keys and values of each layer [row][2 * kv_heads][capacity][head_dim], keys first. */
struct cache {
    float *const *layers;
    int64_t capacity;
};

/* `Truncation` of runtime/sampling.py: rank r of a row goes when its cumulative probability exceeds limit[r]. */
struct cut {
    const float *limit, *temperature; /* limit NULL: the best candidate is taken */
    int64_t count, limit_stride, temperature_stride; /* a stride is 0 where one line serves all rows */
};

struct sampling {
    struct cut normal, high; /* high.limit NULL: repetitions do not count */
    const float *noise;      /* [row][noise_size] */
    const int64_t *recent;   /* [row][window] */
    const uint8_t *ras, *end_allowed; /* [row]; end_allowed NULL: for all */
    int64_t noise_size, window;
};

/* What native.py checks its own structs against. */
static const struct place LAYOUT[] = {
    STRUCT(matrix), FIELD(matrix, weights), FIELD(matrix, bias), FIELD(matrix, factor), FIELD(matrix, format),
    FIELD(matrix, num_in), FIELD(matrix, num_out),
    STRUCT(block), FIELD(block, attention_norm), FIELD(block, ffn_norm), FIELD(block, q_gain), FIELD(block, k_gain),
    FIELD(block, wqkv), FIELD(block, wo), FIELD(block, w1), FIELD(block, w2), FIELD(block, w3),
    STRUCT(stack), FIELD(stack, blocks), FIELD(stack, turns), FIELD(stack, norm), FIELD(stack, eps),
    FIELD(stack, layers), FIELD(stack, dim), FIELD(stack, hidden), FIELD(stack, heads), FIELD(stack, kv_heads),
    FIELD(stack, head_dim),
    STRUCT(model), FIELD(model, slow), FIELD(model, fast), FIELD(model, semantic), FIELD(model, codes),
    FIELD(model, project), FIELD(model, tokens), FIELD(model, code_tables), FIELD(model, fast_codes),
    FIELD(model, semantic_begin), FIELD(model, semantic_end), FIELD(model, vocab_size), FIELD(model, max_positions),
    FIELD(model, num_codebooks), FIELD(model, codebook_size), FIELD(model, norm_fast_input),
    STRUCT(cache), FIELD(cache, layers), FIELD(cache, capacity),
    STRUCT(cut), FIELD(cut, limit), FIELD(cut, temperature), FIELD(cut, count), FIELD(cut, limit_stride),
    FIELD(cut, temperature_stride),
    STRUCT(sampling), FIELD(sampling, normal), FIELD(sampling, high), FIELD(sampling, noise), FIELD(sampling, recent),
    FIELD(sampling, ras), FIELD(sampling, end_allowed), FIELD(sampling, noise_size), FIELD(sampling, window),
    {NULL, 0, 0},
};

const struct place *layout(void) { return LAYOUT; }

/* Transformer blocks */

/* Normed if there is a gain, then turned by the position's angles: pairs (2 i, 2 i + 1) as complex numbers. */
static void turn_head(float *head, const float *gain, float eps, const float *turns, int head_dim) {
    if (gain) rms_norm(head, gain, eps, head_dim, head);
    for (int i = 0; i < head_dim; i += 2) {
        const float a = head[i], b = head[i + 1], cosine = turns[i], sine = turns[i + 1];
        head[i] = a * cosine - b * sine;
        head[i + 1] = a * sine + b * cosine;
    }
}

/* One query head over keys 0..length-1 → out [head_dim]; scores [length] is scratch. */
static void attend(const float *restrict q, const float *restrict keys, const float *restrict values, int length,
                   int head_dim, float *restrict scores, float *restrict out) {
    const float scale = 1.0f / sqrtf((float)head_dim);
    float best = -INFINITY, total = 0;
    for (int j = 0; j < length; j++) {
        scores[j] = scale * dot(q, keys + (size_t)j * head_dim, head_dim);
        best = scores[j] > best ? scores[j] : best;
    }
    memset(out, 0, sizeof *out * head_dim);
    for (int j = 0; j < length; j++) {
        const float weight = expf(scores[j] - best);
        const float *value = values + (size_t)j * head_dim;
        total += weight;
        for (int i = 0; i < head_dim; i++) out[i] += weight * value[i];
    }
    for (int i = 0; i < head_dim; i++) out[i] /= total;
}

static size_t scratch_size(const struct stack *s, int n, int64_t capacity) {
    const int heads = padded((s->heads + 2 * s->kv_heads) * s->head_dim);
    return (size_t)n * (padded(s->dim) * 2 + heads + s->heads * s->head_dim + 2 * padded(s->hidden)) + capacity;
}

/* All blocks over x [n][dim], in place. */
static void run_stack(const struct stack *s, int n, float *x, const int64_t *rows, const int64_t *positions,
                      const struct cache *cache, float *scratch) {
    const int dim = s->dim, hidden = s->hidden, head_dim = s->head_dim, kv = s->kv_heads, group = s->heads / kv;
    const int head_width = padded((s->heads + 2 * kv) * head_dim), out_width = padded(dim), wide = padded(hidden);
    float *normed = scratch, *heads = normed + (size_t)n * out_width, *mixed = heads + (size_t)n * head_width;
    float *added = mixed + (size_t)n * s->heads * head_dim, *gate = added + (size_t)n * out_width;
    float *up = gate + (size_t)n * wide, *scores = up + (size_t)n * wide;
    const size_t head_size = (size_t)cache->capacity * head_dim;
    for (int layer = 0; layer < s->layers; layer++) {
        const struct block *block = s->blocks + layer;
        for (int i = 0; i < n; i++)
            rms_norm(x + (size_t)i * dim, block->attention_norm, s->eps, dim, normed + (size_t)i * dim);
        product(&block->wqkv, n, normed, heads);
        for (int i = 0; i < n; i++) { /* all keys and values first: tokens of one row see one another */
            float *own = heads + (size_t)i * head_width;
            const float *turns = s->turns + positions[i] * head_dim;
            float *stored = cache->layers[layer] + rows[i] * 2 * kv * head_size + positions[i] * head_dim;
            for (int h = 0; h < s->heads; h++) turn_head(own + h * head_dim, block->q_gain, s->eps, turns, head_dim);
            for (int h = 0; h < 2 * kv; h++) {
                float *head = own + (s->heads + h) * head_dim;
                if (h < kv) turn_head(head, block->k_gain, s->eps, turns, head_dim);
                memcpy(stored + h * head_size, head, sizeof *head * head_dim);
            }
        }
        for (int i = 0; i < n; i++) {
            const float *keys = cache->layers[layer] + rows[i] * 2 * kv * head_size, *values = keys + kv * head_size;
            for (int h = 0; h < s->heads; h++)
                attend(heads + (size_t)i * head_width + h * head_dim, keys + h / group * head_size,
                       values + h / group * head_size, (int)positions[i] + 1, head_dim, scores,
                       mixed + ((size_t)i * s->heads + h) * head_dim);
        }
        product(&block->wo, n, mixed, added);
        for (int i = 0; i < n; i++) {
            float *own = x + (size_t)i * dim;
            add(own, added + (size_t)i * out_width, dim);
            rms_norm(own, block->ffn_norm, s->eps, dim, normed + (size_t)i * dim);
        }
        product(&block->w1, n, normed, gate);
        product(&block->w3, n, normed, up);
        for (int i = 0; i < n; i++) /* rows close up: from padded(hidden) to hidden */
            for (int j = 0; j < hidden; j++) {
                const float g = gate[(size_t)i * wide + j];
                gate[(size_t)i * hidden + j] = g / (1.0f + expf(-g)) * up[(size_t)i * wide + j];
            }
        product(&block->w2, n, gate, added);
        for (int i = 0; i < n; i++) add(x + (size_t)i * dim, added + (size_t)i * out_width, dim);
    }
}

/* Drawing */

static int64_t best_of(const float *scores, int64_t size) {
    int64_t best = 0;
    for (int64_t i = 1; i < size; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}

/* One id from raw logits [size] with uniforms noise [size], after the cuts of row `row`; left [size] is scratch. */
static int64_t draw(const float *logits, int64_t size, const float *noise, const struct cut *cut, int64_t row,
                    float *left) {
    const float *limit = cut->limit + row * cut->limit_stride;
    const float temperature = cut->temperature[row * cut->temperature_stride];
    const float highest = logits[best_of(logits, size)];
    double total = 0, passed = 0;
    float least = INFINITY;
    int64_t drawn = 0;
    for (int64_t i = 0; i < size; i++) total += expf(logits[i] - highest);
    memcpy(left, logits, sizeof *left * size);
    for (int64_t rank = 0; rank < size && rank < cut->count; rank++) {
        const int64_t id = best_of(left, size);
        passed += expf(logits[id] - highest) / total;
        if (rank && (float)passed > limit[rank]) break; /* and so do all the ranks after it */
        const float uniform = noise[id] < 1.17549435e-38f ? 1.17549435e-38f : noise[id];
        const float time = expf((logits[id] - highest) / temperature) / logf(uniform); /* the least one wins */
        if (time < least) least = time, drawn = id;
        left[id] = -INFINITY;
    }
    return drawn;
}

/* The semantic id of a row: drawn, and drawn again where the first is among the recent ones. */
static int64_t draw_semantic(const float *logits, int64_t size, const struct sampling *s, int64_t row, float *left) {
    if (!s->normal.limit) return best_of(logits, size);
    const float *noise = s->noise + row * s->noise_size;
    const int64_t drawn = draw(logits, size, noise, &s->normal, row, left);
    if (!s->high.limit || !s->ras[row] || drawn >= size - 1) return drawn;
    for (int64_t i = 0; i < s->window; i++)
        if (s->recent[row * s->window + i] == drawn) return draw(logits, size, noise + size, &s->high, row, left);
    return drawn;
}

static int all_finite(const float *x, int64_t size) {
    float sum = 0;
    for (int64_t i = 0; i < size; i++) sum += x[i] * 0.0f; /* NaN where one is not */
    return sum == 0.0f;
}

/* What the shared library offers; both calls return OK or what went wrong. */

enum { OK, NO_MEMORY, OUT_OF_RANGE };

int32_t interface(void) { return INTERFACE; }

static int in_range(const struct model *m, const int64_t *column, int64_t position, int64_t capacity) {
    int fits = position >= 0 && position < capacity && position < m->max_positions;
    fits &= column[0] >= 0 && column[0] < m->vocab_size;
    for (int c = 1; c <= m->num_codebooks; c++) fits &= column[c] >= 0 && column[c] < m->codebook_size;
    return fits;
}

/* Columns [n][C + 1] through the slow model, written into the cache → the state after the final norm and the one for
 * the fast model, of the last `wanted` tokens: final and fast_hidden [wanted][dim]. */
int32_t advance(const struct model *m, const struct cache *cache, int32_t n, int32_t wanted, const int64_t *columns,
                const int64_t *rows, const int64_t *positions, float *final, float *fast_hidden) {
    const struct stack *s = &m->slow;
    const int dim = s->dim, num_codebooks = m->num_codebooks;
    for (int i = 0; i < n; i++)
        if (!in_range(m, columns + (size_t)i * (num_codebooks + 1), positions[i], cache->capacity)) return OUT_OF_RANGE;
    float *x = malloc(sizeof *x * ((size_t)n * dim + scratch_size(s, n, cache->capacity)));
    if (!x) return NO_MEMORY;
    for (int i = 0; i < n; i++) {
        const int64_t *column = columns + (size_t)i * (num_codebooks + 1);
        float *own = x + (size_t)i * dim;
        const float *token = m->tokens + column[0] * dim;
        memset(own, 0, sizeof *own * dim);
        if (column[0] >= m->semantic_begin && column[0] <= m->semantic_end)
            for (int c = 0; c < num_codebooks; c++)
                add(own, m->code_tables + ((int64_t)c * m->codebook_size + column[1 + c]) * dim, dim);
        add(own, token, dim);
    }
    run_stack(s, n, x, rows, positions, cache, x + (size_t)n * dim);
    for (int i = 0; i < wanted; i++) {
        const float *own = x + (size_t)(n - wanted + i) * dim;
        rms_norm(own, s->norm, s->eps, dim, final + (size_t)i * dim);
        memcpy(fast_hidden + (size_t)i * dim, m->norm_fast_input ? final + (size_t)i * dim : own, sizeof *own * dim);
    }
    free(x);
    return OK;
}

/* One frame for each of n rows from the states of `advance` → out [n][2 + C]: whether all logits are finite, the
 * semantic id (N: end of speech), then the codes. */
int32_t frame(const struct model *m, const struct sampling *sampling, int32_t n, const float *final,
              const float *fast_hidden, int64_t *out) {
    const struct stack *s = &m->fast;
    const int C = m->num_codebooks, dim = s->dim, kv = s->kv_heads, size = m->codebook_size;
    const int width = padded(size + 1), narrow = padded(size), given = padded(dim);
    const size_t layer_size = (size_t)n * 2 * kv * C * s->head_dim;
    const size_t floats = 2 * (size_t)n * dim + (size_t)n * given + (size_t)n * width + width +
                          layer_size * s->layers + scratch_size(s, 2 * n, C);
    float *memory = malloc(sizeof *memory * floats + sizeof(float *) * s->layers + sizeof(int64_t) * 4 * n);
    if (!memory) return NO_MEMORY;
    float **layers = (float **)memory; /* the widest types come first, for their alignment */
    int64_t *rows = (int64_t *)(layers + s->layers), *positions = rows + 2 * n;
    float *x = (float *)(positions + 2 * n), *projected = x + 2 * (size_t)n * dim;
    float *logits = projected + (size_t)n * given, *left = logits + (size_t)n * width, *stored = left + width;
    float *scratch = stored + layer_size * s->layers;
    for (int layer = 0; layer < s->layers; layer++) layers[layer] = stored + layer_size * layer;
    const struct cache cache = {layers, C};

    product(&m->semantic, n, final, logits);
    for (int i = 0; i < n; i++) {
        float *own = logits + (size_t)i * width;
        int64_t *line = out + (size_t)i * (2 + C);
        line[0] = all_finite(own, size + 1);
        if (sampling->end_allowed && !sampling->end_allowed[i]) own[size] = -INFINITY;
        line[1] = draw_semantic(own, size + 1, sampling, i, left);
        line[2] = line[1] < size ? line[1] : size - 1; /* a row that has ended computes something harmless */
    }
    if (m->project.weights) product(&m->project, n, fast_hidden, projected);
    for (int i = 0; i < n; i++) { /* positions 0 and 1 are known beforehand and run as one pass */
        const float *start = m->project.weights ? projected + (size_t)i * given : fast_hidden + (size_t)i * dim;
        memcpy(x + 2 * (size_t)i * dim, start, sizeof *x * dim);
        memcpy(x + (2 * (size_t)i + 1) * dim, m->fast_codes + out[(size_t)i * (2 + C) + 2] * dim, sizeof *x * dim);
        rows[2 * i] = rows[2 * i + 1] = i;
        positions[2 * i] = 0;
        positions[2 * i + 1] = 1;
    }
    for (int index = 1; index < C; index++) {
        run_stack(s, index == 1 ? 2 * n : n, x, rows, positions, &cache, scratch);
        for (int i = 0; i < n; i++) {
            const float *own = x + (index == 1 ? 2 * (size_t)i + 1 : (size_t)i) * dim;
            rms_norm(own, s->norm, s->eps, dim, projected + (size_t)i * dim);
        }
        product(&m->codes, n, projected, logits);
        for (int i = 0; i < n; i++) {
            const float *own = logits + (size_t)i * narrow;
            const float *noise = sampling->noise + i * sampling->noise_size + 2 * (size + 1) + (index - 1) * (int64_t)size;
            int64_t *line = out + (size_t)i * (2 + C);
            line[0] &= all_finite(own, size);
            line[2 + index] = sampling->normal.limit ? draw(own, size, noise, &sampling->normal, i, left)
                                                     : best_of(own, size);
            memcpy(x + (size_t)i * dim, m->fast_codes + line[2 + index] * dim, sizeof *x * dim);
            rows[i] = i;
            positions[i] = index + 1;
        }
    }
    free(memory);
    return OK;
}
