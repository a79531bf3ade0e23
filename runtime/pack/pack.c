/* pack.c - see pack.h. */
#include "runtime/pack/pack.h"

#include "common/mem.h"
#include "common/vectorise.h"
#include "runtime/pack/layers.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct pack_head) == 64, "as in memory");
_Static_assert(sizeof(struct pack_block) == 32, "as in memory");

#define N_HALVES (PACK_BLOCK / PACK_HALF)
#define MAX_WORDS (24u + PACK_CODE_BITS) /* of a lane in a half */
#define NUMBERS (PACK_HALF / PACK_LANES) /* of a lane in a half */
#define ENTRY_WORDS 7u                   /* before its sum */

#define F32_FORM    \
    {               \
        4, 8, 23, 0 \
    }
#define TF32_FORM    \
    {                \
        4, 8, 10, 13 \
    }
#define F16_FORM    \
    {               \
        2, 5, 10, 0 \
    }
#define BF16_FORM  \
    {              \
        2, 8, 7, 0 \
    }

/* How numbers of a kind lie in `wide` bytes: sign, exponent, mantissa, and zeroes below. */
static const struct form {
    uint32_t wide, e_bits, m_bits, zeroes;
} FORMS[PACK_N_KINDS] = {[PACK_KEPT] = {.wide = 1},
                         [PACK_KIND_F32] = F32_FORM,
                         [PACK_KIND_TF32] = TF32_FORM,
                         [PACK_KIND_F16] = F16_FORM,
                         [PACK_KIND_BF16] = BF16_FORM};
static const struct form F32 = F32_FORM, TF32 = TF32_FORM, F16 = F16_FORM, BF16 = BF16_FORM;

struct half { /* one half of a block, as it lies in memory */
    uint32_t n_words;
    uint32_t words[MAX_WORDS][PACK_LANES];
};

static uint32_t n_words_of(const struct form *f)
{
    return PACK_CODE_BITS + 1 + f->m_bits;
}

static uint32_t n_halves_of(uint32_t n)
{
    return (n + PACK_HALF - 1) / PACK_HALF;
}

static uint32_t read_number(const unsigned char *at, uint32_t wide)
{
    uint32_t v = 0;

    memcpy(&v, at, wide);
    return v;
}

static uint32_t head_sum(const struct pack_head *h)
{
    uint32_t words[sizeof(*h) / sizeof(uint32_t)], sum = 0;

    memcpy(words, h, sizeof(*h));
    for (size_t i = 0; i + 1 < SH_ARRAY_LEN(words); i++)
        sum = pack_mix(sum, words[i]);
    return sum;
}

static uint32_t entry_sum(const struct pack_block *b)
{
    uint32_t words[sizeof(*b) / sizeof(uint32_t)], sum = 0;

    memcpy(words, b, sizeof(*b));
    for (size_t i = 0; i < ENTRY_WORDS; i++)
        sum = pack_mix(sum, words[i]);
    return sum;
}

/* Bytes behind the head that a block's numbers take, without escapes. */
static uint64_t plane_bytes(const struct pack_block *b)
{
    const struct form *f = &FORMS[b->kind];

    return b->kind == PACK_KEPT
               ? SH_ALIGN_UP((uint64_t)b->n, 16)
               : (uint64_t)n_halves_of(b->n) * n_words_of(f) * PACK_LANES * sizeof(uint32_t);
}

/* ------------------------------------------------------------------ sums */

static uint32_t mix_kept(const unsigned char *planes, size_t bytes, uint32_t lane, uint32_t h)
{
    uint32_t word;

    for (size_t at = (size_t)lane * 16; at < bytes; at += PACK_LANES * 16)
        for (size_t k = 0; k < 16; k += sizeof(word)) {
            memcpy(&word, planes + at + k, sizeof(word));
            h = pack_mix(h, word);
        }
    return h;
}

/* Four escapes to a word. */
static uint32_t mix_escapes(const unsigned char *escapes, uint32_t n, uint32_t h)
{
    for (uint32_t at = 0; at < n; at += 4) {
        uint32_t word = 0;

        memcpy(&word, escapes + at, SH_MIN(n - at, 4u));
        h = pack_mix(h, word);
    }
    return h;
}

static uint32_t escapes_of(const struct half *half, uint32_t lane)
{
    return half->words[0][lane] & half->words[1][lane] & half->words[2][lane];
}

static uint32_t n_escapes_of(const struct half *half, uint32_t lane)
{
    return (uint32_t)__builtin_popcount(escapes_of(half, lane));
}

/* What the entry's sum should be. halves: NULL if it is kept as it is. */
static uint32_t block_sum(const struct pack_block *b, const struct half *halves,
                          const unsigned char *planes, const unsigned char *escapes)
{
    const uint32_t begin = entry_sum(b);
    uint32_t sums[PACK_LANES], sum = 0;

    for (uint32_t l = 0; l < PACK_LANES; l++)
        sums[l] = halves ? begin : mix_kept(planes, (size_t)plane_bytes(b), l, begin);
    for (uint32_t h = 0; halves && h < n_halves_of(b->n); h++)
        for (uint32_t l = 0; l < PACK_LANES; l++) {
            const uint32_t n = n_escapes_of(&halves[h], l);

            for (uint32_t j = 0; j < halves[h].n_words; j++)
                sums[l] = pack_mix(sums[l], halves[h].words[j][l]);
            sums[l] = mix_escapes(escapes, n, sums[l]);
            escapes += n;
        }
    for (uint32_t l = 0; l < PACK_LANES; l++)
        sum += pack_join(sums[l], l);
    return sum;
}

/* ------------------------------------------------------------------ packing */

struct packer { /* of one layer */
    const unsigned char *layer;
    unsigned char *packed;
    struct pack_block *blocks; /* in `packed` */
    uint32_t n_blocks;
    unsigned char *escapes; /* OWNED: they come behind the entries */
    size_t n_escapes;
    struct half half;
};

/* The seven exponents that most of the numbers have, and how many have another. */
static uint32_t choose_table(const uint32_t counts[256], uint32_t n, uint8_t table[8])
{
    uint32_t others = n, seen[256], n_seen = 0;

    for (uint32_t e = 0; e < 256; e++)
        if (counts[e])
            seen[n_seen++] = e;
    memset(table, 0, 8);
    for (uint32_t c = 0; c < PACK_ESCAPE && n_seen; c++) {
        uint32_t best = 0;

        for (uint32_t k = 1; k < n_seen; k++)
            best = counts[seen[k]] > counts[seen[best]] ? k : best;
        table[c] = (uint8_t)seen[best];
        others -= counts[seen[best]];
        seen[best] = seen[--n_seen];
    }
    return others;
}

/* What follows takes the form as a constant: a copy of it for each kind. */
#define FOR_FORM static inline __attribute__((always_inline))

FOR_FORM uint32_t exponent_of(const struct form *f, uint32_t v)
{
    return v >> (f->zeroes + f->m_bits) & ((1u << f->e_bits) - 1);
}

FOR_FORM void count_exponents(const struct form *f, const unsigned char *from, uint32_t n,
                              uint32_t counts[256])
{
    uint32_t other[256] = {0}; /* neighbours are often equal: no store waits for the last */
    uint32_t k = 0;

    for (; k + 2 <= n; k += 2) {
        counts[exponent_of(f, read_number(from + (size_t)k * f->wide, f->wide))]++;
        other[exponent_of(f, read_number(from + (size_t)(k + 1) * f->wide, f->wide))]++;
    }
    if (k < n)
        counts[exponent_of(f, read_number(from + (size_t)k * f->wide, f->wide))]++;
    for (uint32_t e = 0; e < 256; e++)
        counts[e] += other[e];
}

/* Numbers of all lanes at a time, so that a loop over them is one over vectors. */
struct lanes {
    uint32_t v[PACK_LANES];
};

/* Number i of each lane; of a half that is not whole, those that are not there are 0. */
FOR_FORM void read_lanes(const struct form *f, const unsigned char *from, uint32_t i,
                         struct lanes *x)
{
    const uint32_t v = 16 / f->wide;
    const unsigned char *at = from + (size_t)(i / v * PACK_LANES * v + i % v) * f->wide;

    for (uint32_t l = 0; l < PACK_LANES; l++)
        x->v[l] = read_number(at + (size_t)l * 16, f->wide);
}

/* The places of exponents in the table. */
FOR_FORM void look_up(const struct form *f, const struct lanes *x, const uint8_t table[8],
                      struct lanes *code)
{
    for (uint32_t l = 0; l < PACK_LANES; l++)
        code->v[l] = PACK_ESCAPE;
    for (uint32_t t = PACK_ESCAPE; t-- > 0;) {
        const uint32_t e = table[t];

        for (uint32_t l = 0; l < PACK_LANES; l++)
            code->v[l] = exponent_of(f, x->v[l]) == e ? t : code->v[l];
    }
}

/* Signs and mantissas, behind the planes. */
FOR_FORM void write_bits(const struct form *f, const struct lanes *x, uint32_t i,
                         struct lanes *hold, struct half *half)
{
    const uint32_t bits = f->m_bits + 1, fill = i * bits % 32, next = fill + bits;
    const uint32_t m_mask = (1u << f->m_bits) - 1, sign = f->wide * 8 - 1;
    uint32_t *out = half->words[PACK_CODE_BITS + i * bits / 32];
    struct lanes b;

    for (uint32_t l = 0; l < PACK_LANES; l++) {
        b.v[l] = x->v[l] >> sign << f->m_bits | (x->v[l] >> f->zeroes & m_mask);
        hold->v[l] |= b.v[l] << fill;
    }
    if (next < 32)
        return;
    for (uint32_t l = 0; l < PACK_LANES; l++) {
        out[l] = hold->v[l];
        hold->v[l] = next > 32 ? b.v[l] >> (32 - fill) : 0;
    }
}

/* In the order of lane and number. */
FOR_FORM uint32_t list_escapes(const struct form *f, const unsigned char *from,
                               const struct half *half, unsigned char *escapes)
{
    const uint32_t v = 16 / f->wide;
    uint32_t n = 0;

    for (uint32_t l = 0; l < PACK_LANES; l++) {
        const uint32_t all = half->words[0][l] & half->words[1][l] & half->words[2][l];

        for (uint32_t s = 0; all && s < 4; s++)
            for (uint32_t m = all >> s & 0x11111111u; m; m &= m - 1) {
                const uint32_t i = s * 8 + (uint32_t)__builtin_ctz(m) / 4;
                const size_t k = i / v * PACK_LANES * v + l * v + i % v;

                escapes[n++] =
                    (unsigned char)exponent_of(f, read_number(from + k * f->wide, f->wide));
            }
    }
    return n;
}

/* Returns how many escapes it has. */
FOR_FORM uint32_t fill_half(const struct form *f, const unsigned char *from, uint32_t n,
                            const uint8_t table[8], struct half *half, unsigned char *escapes)
{
    const uint32_t v = 16 / f->wide;
    struct lanes hold = {{0}}, x, code;
    uint32_t whole[PACK_HALF];

    if (n < PACK_HALF) {
        memset(whole, 0, sizeof(whole));
        from = memcpy(whole, from, (size_t)n * f->wide);
    }
    half->n_words = n_words_of(f);
    memset(half->words, 0, PACK_CODE_BITS * sizeof(half->words[0]));
    for (uint32_t i = 0; i < NUMBERS; i++) {
        const uint32_t first = i / v * PACK_LANES * v + i % v;

        read_lanes(f, from, i, &x);
        look_up(f, &x, table, &code);
        for (uint32_t l = 0; l < PACK_LANES; l++)
            code.v[l] = first + l * v < n ? code.v[l] : 0; /* it is not there */
        for (uint32_t b = 0; b < PACK_CODE_BITS; b++)
            for (uint32_t l = 0; l < PACK_LANES; l++)
                half->words[b][l] |= (code.v[l] >> b & 1) << PACK_BIT(i);
        write_bits(f, &x, i, &hold, half);
    }
    return list_escapes(f, from, half, escapes);
}

static void count_exponents_of(enum pack_kind kind, const unsigned char *from, uint32_t n,
                               uint32_t counts[256])
{
    memset(counts, 0, 256 * sizeof(*counts));
    if (kind == PACK_KIND_F16)
        count_exponents(&F16, from, n, counts);
    else if (kind == PACK_KIND_BF16)
        count_exponents(&BF16, from, n, counts);
    else
        count_exponents(&F32, from, n, counts);
}

/* Returns how many escapes it has. */
SH_VECTORISE static uint32_t fill_half_of(enum pack_kind kind, const unsigned char *from,
                                          uint32_t n, const uint8_t table[8], struct half *half,
                                          unsigned char *escapes)
{
    switch (kind) {
    case PACK_KIND_F16:
        return fill_half(&F16, from, n, table, half, escapes);
    case PACK_KIND_BF16:
        return fill_half(&BF16, from, n, table, half, escapes);
    case PACK_KIND_TF32:
        return fill_half(&TF32, from, n, table, half, escapes);
    default:
        return fill_half(&F32, from, n, table, half, escapes);
    }
}

/* tf32, if nothing else is in the numbers. */
static enum pack_kind choose_kind(enum pack_type type, const unsigned char *from, uint32_t n)
{
    uint32_t any = 0;

    if (type != PACK_32)
        return type == PACK_F16 ? PACK_KIND_F16 : type == PACK_BF16 ? PACK_KIND_BF16 : PACK_KEPT;
    for (uint32_t k = 0; k < n; k++)
        any |= read_number(from + (size_t)k * 4, 4);
    return any & ((1u << FORMS[PACK_KIND_TF32].zeroes) - 1) ? PACK_KIND_F32 : PACK_KIND_TF32;
}

/* `bytes` of the layer from `at` on as block b, whose planes come at `to`. Returns their end. */
static uint64_t pack_block(struct packer *p, struct pack_block *b, enum pack_type type, uint64_t at,
                           uint32_t bytes, uint64_t to)
{
    const unsigned char *from = p->layer + at;
    unsigned char *escapes = p->escapes + p->n_escapes, *out = p->packed + to;
    const enum pack_kind kind = choose_kind(type, from, bytes / FORMS[PACK_KIND_F32].wide);
    const struct form *f = &FORMS[kind];
    const uint32_t n = bytes / f->wide;
    uint32_t counts[256], n_out = 0;

    *b = (struct pack_block){.to = (uint32_t)(at / PACK_UNIT),
                             .planes = (uint32_t)(to / PACK_ALIGN),
                             .escapes = (uint32_t)p->n_escapes,
                             .n = (uint16_t)n,
                             .kind = (uint8_t)kind};
    if (kind != PACK_KEPT)
        count_exponents_of(kind, from, n, counts);
    if (kind == PACK_KEPT ||
        choose_table(counts, n, b->table) + plane_bytes(b) >= SH_ALIGN_UP(bytes, 16u)) {
        b->kind = PACK_KEPT;
        b->n = (uint16_t)bytes;
        memset(b->table, 0, sizeof(b->table));
        memset(out, 0, (size_t)SH_ALIGN_UP((uint64_t)bytes, PACK_ALIGN));
        memcpy(out, from, bytes);
        return to + SH_ALIGN_UP((uint64_t)bytes, PACK_ALIGN);
    }
    for (uint32_t h = 0; h < n_halves_of(n); h++) {
        const unsigned char *part = from + (size_t)h * PACK_HALF * f->wide;
        const size_t half_bytes = (size_t)n_words_of(f) * sizeof(p->half.words[0]);

        b->n_escapes[h] = (uint16_t)fill_half_of(kind, part, SH_MIN(n - h * PACK_HALF, PACK_HALF),
                                                 b->table, &p->half, escapes + n_out);
        n_out += b->n_escapes[h];
        memcpy(out + h * half_bytes, p->half.words, half_bytes);
    }
    p->n_escapes += n_out;
    return to + plane_bytes(b);
}

/* Places are known now: the list of escapes comes between entries and planes. */
static void seal_block(const struct packer *p, struct pack_block *b, uint32_t escapes_at,
                       uint32_t shift)
{
    struct half halves[N_HALVES];
    const struct form *f = &FORMS[b->kind];
    const unsigned char *planes;

    b->escapes += escapes_at;
    b->planes += shift;
    planes = p->packed + (size_t)b->planes * PACK_ALIGN;
    for (uint32_t h = 0; b->kind != PACK_KEPT && h < n_halves_of(b->n); h++) {
        halves[h].n_words = n_words_of(f);
        memcpy(halves[h].words, planes + h * halves[h].n_words * sizeof(halves[h].words[0]),
               halves[h].n_words * sizeof(halves[h].words[0]));
    }
    b->sum = block_sum(b, b->kind == PACK_KEPT ? NULL : halves, planes, p->packed + b->escapes);
}

static uint32_t block_bytes(enum pack_type type)
{
    return type == PACK_F16 || type == PACK_BF16 ? PACK_BLOCK * 2 : PACK_RAW_BYTES;
}

static size_t count_blocks(const struct pack_span *spans, size_t n)
{
    size_t n_blocks = 0;

    for (size_t i = 0; i < n; i++)
        n_blocks += (size_t)((spans[i].bytes + block_bytes(spans[i].type) - 1) /
                             block_bytes(spans[i].type));
    return n_blocks;
}

uint64_t pack_shift(const uint64_t *ends, const uint64_t *packed_ends, uint32_t n_layers)
{
    uint64_t shift = 0;

    for (uint32_t i = 0; i < n_layers; i++) {
        const uint64_t packed = layer_begin(packed_ends, i);

        shift = SH_MAX(shift, ends[i] > packed ? ends[i] - packed : 0);
    }
    return SH_ALIGN_UP(shift, (uint64_t)PACK_ALIGN);
}

size_t pack_bound(uint64_t bytes, size_t n_spans)
{
    const size_t n_blocks = (size_t)(bytes / (PACK_BLOCK * 2)) + n_spans + 1;

    return sizeof(struct pack_head) + n_blocks * (sizeof(struct pack_block) + PACK_ALIGN) +
           (size_t)SH_ALIGN_UP(bytes, PACK_ALIGN) + 2 * PACK_ALIGN;
}

static uint64_t pack_spans(struct packer *p, const struct pack_span *spans, size_t n, uint64_t to)
{
    for (size_t i = 0; i < n; i++)
        for (uint64_t at = 0; at < spans[i].bytes;) {
            const uint64_t left = spans[i].bytes - at;
            const uint32_t bytes = (uint32_t)SH_MIN(left, (uint64_t)block_bytes(spans[i].type));
            /* What is no whole number of units is kept as it is. */
            const enum pack_type type = bytes % 4 ? PACK_BYTES : spans[i].type;

            to = pack_block(p, &p->blocks[p->n_blocks++], type, spans[i].off + at, bytes, to);
            at += bytes;
        }
    return to;
}

int pack_layer(const void *layer, uint64_t bytes, const struct pack_span *spans, size_t n_spans,
               void *packed, size_t *packed_bytes, struct sh_err *err)
{
    struct pack_head *head = packed;
    struct packer *p;
    const size_t n = count_blocks(spans, n_spans);
    uint64_t begin = SH_ALIGN_UP(sizeof(*head) + n * sizeof(struct pack_block), PACK_ALIGN), end;
    size_t gap;

    if (bytes > (uint64_t)32 << 30)
        return SH_FAIL(err, SH_E_TOOBIG, "a layer of more than 32 GiB cannot be packed");
    p = calloc(1, sizeof(*p));
    if (p)
        p->escapes = malloc((size_t)(bytes / 2) + PACK_BLOCK + 1);
    if (!p || !p->escapes) {
        free(p);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate memory to pack a layer");
    }
    p->layer = layer;
    p->packed = packed;
    memset(packed, 0, begin);
    p->blocks = (struct pack_block *)(void *)(p->packed + sizeof(*head));
    end = pack_spans(p, spans, n_spans, begin);
    gap = (size_t)SH_ALIGN_UP(p->n_escapes, PACK_ALIGN);
    if (begin + gap > UINT32_MAX) {
        free(p->escapes);
        free(p);
        return SH_FAIL(err, SH_E_TOOBIG, "a layer of so many numbers cannot be packed");
    }
    if (gap) {
        memmove(p->packed + begin + gap, p->packed + begin, (size_t)(end - begin));
        memset(p->packed + begin, 0, gap);
        memcpy(p->packed + begin, p->escapes, p->n_escapes);
    }
    for (size_t i = 0; i < n; i++)
        seal_block(p, &p->blocks[i], (uint32_t)begin, (uint32_t)(gap / PACK_ALIGN));
    *packed_bytes = (size_t)end + gap;
    *head = (struct pack_head){.magic = PACK_MAGIC,
                               .n_blocks = (uint32_t)n,
                               .bytes = bytes,
                               .packed_bytes = *packed_bytes};
    head->sum = head_sum(head);
    free(p->escapes);
    free(p);
    return SH_OK;
}

/* ------------------------------------------------------------------ unpacking */

int pack_look(const void *packed, size_t room, struct pack_head *out, struct sh_err *err)
{
    if (room >= sizeof(*out)) {
        memcpy(out, packed, sizeof(*out));
        if (out->magic == PACK_MAGIC && out->sum == head_sum(out) && out->packed_bytes <= room &&
            out->packed_bytes % PACK_ALIGN == 0 &&
            sizeof(*out) + (uint64_t)out->n_blocks * sizeof(struct pack_block) <= out->packed_bytes)
            return SH_OK;
    }
    return SH_FAIL(err, SH_E_IO, "packed weights are damaged: their head");
}

/* Does it stay within what was packed, and within the layer? */
static bool is_block_sound(const struct pack_block *b, size_t packed_bytes, uint64_t bytes)
{
    const uint64_t planes = (uint64_t)b->planes * PACK_ALIGN, to = (uint64_t)b->to * PACK_UNIT;

    return b->kind < PACK_N_KINDS && b->n > 0 &&
           b->n <= (b->kind == PACK_KEPT ? PACK_RAW_BYTES : PACK_BLOCK) && planes <= packed_bytes &&
           plane_bytes(b) <= packed_bytes - planes &&
           (uint64_t)b->escapes + b->n_escapes[0] + b->n_escapes[1] <= packed_bytes &&
           to <= bytes && (uint64_t)b->n * FORMS[b->kind].wide <= bytes - to;
}

FOR_FORM void unpack_half(const struct form *f, const struct half *half, const uint8_t table[8],
                          const unsigned char *escapes, uint32_t n, unsigned char *to)
{
    const uint32_t bits = f->m_bits + 1, mask = (uint32_t)((1ull << bits) - 1);
    const uint32_t v = 16 / f->wide, row = PACK_LANES * v;

    for (uint32_t l = 0; l < PACK_LANES; l++)
        for (uint32_t i = 0; i < NUMBERS; i++) {
            const uint32_t k = i / v * row + l * v + i % v, at = i * bits;
            const uint32_t b = PACK_BIT(i);
            const uint32_t c = (half->words[0][l] >> b & 1) | (half->words[1][l] >> b & 1) << 1 |
                               (half->words[2][l] >> b & 1) << 2;
            const uint32_t e = c == PACK_ESCAPE ? *escapes++ : table[c];
            uint32_t rest = half->words[PACK_CODE_BITS + at / 32][l] >> at % 32, number;

            if (k >= n)
                continue;
            if (at % 32 + bits > 32)
                rest |= half->words[PACK_CODE_BITS + at / 32 + 1][l] << (32 - at % 32);
            rest &= mask;
            number = (rest >> f->m_bits) << (f->wide * 8 - 1) | e << (f->zeroes + f->m_bits) |
                     (rest & ((1u << f->m_bits) - 1)) << f->zeroes;
            memcpy(to + (size_t)k * f->wide, &number, f->wide);
        }
}

static void unpack_half_of(enum pack_kind kind, const struct half *half, const uint8_t table[8],
                           const unsigned char *escapes, uint32_t n, unsigned char *to)
{
    if (kind == PACK_KIND_F16)
        unpack_half(&F16, half, table, escapes, n, to);
    else if (kind == PACK_KIND_BF16)
        unpack_half(&BF16, half, table, escapes, n, to);
    else if (kind == PACK_KIND_TF32)
        unpack_half(&TF32, half, table, escapes, n, to);
    else
        unpack_half(&F32, half, table, escapes, n, to);
}

static bool unpack_block(const unsigned char *packed, const struct pack_block *b, unsigned char *to,
                         struct half halves[N_HALVES])
{
    const struct form *f = &FORMS[b->kind];
    const unsigned char *planes = packed + (size_t)b->planes * PACK_ALIGN;
    const unsigned char *escapes = packed + b->escapes;

    if (b->kind == PACK_KEPT) {
        if (block_sum(b, NULL, planes, escapes) != b->sum)
            return false;
        memcpy(to, planes, b->n);
        return true;
    }
    for (uint32_t h = 0; h < n_halves_of(b->n); h++) {
        const size_t half_bytes = (size_t)n_words_of(f) * sizeof(halves[h].words[0]);
        uint32_t n = 0;

        halves[h].n_words = n_words_of(f);
        memcpy(halves[h].words, planes + h * half_bytes, half_bytes);
        for (uint32_t l = 0; l < PACK_LANES; l++)
            n += n_escapes_of(&halves[h], l);
        if (n != b->n_escapes[h]) /* it would read beyond them */
            return false;
    }
    if (block_sum(b, halves, planes, escapes) != b->sum)
        return false;
    for (uint32_t h = 0; h < n_halves_of(b->n); h++) {
        unpack_half_of((enum pack_kind)b->kind, &halves[h], b->table, escapes,
                       SH_MIN(b->n - h * PACK_HALF, PACK_HALF),
                       to + (size_t)h * PACK_HALF * f->wide);
        escapes += b->n_escapes[h];
    }
    return true;
}

int pack_unpack(const void *packed, size_t packed_bytes, void *layer, uint64_t bytes,
                struct sh_err *err)
{
    struct half halves[N_HALVES];
    struct pack_head head;
    int rc = pack_look(packed, packed_bytes, &head, err);

    if (rc)
        return rc;
    if (head.bytes != bytes || head.packed_bytes != packed_bytes)
        return SH_FAIL(err, SH_E_IO, "packed weights are damaged: they are of another layer");
    for (uint32_t i = 0; i < head.n_blocks; i++) {
        struct pack_block b;

        memcpy(&b, (const unsigned char *)packed + sizeof(head) + (size_t)i * sizeof(b), sizeof(b));
        if (!is_block_sound(&b, packed_bytes, bytes) ||
            !unpack_block(packed, &b, (unsigned char *)layer + (size_t)b.to * PACK_UNIT, halves))
            return SH_FAIL(err, SH_E_IO, "packed weights are damaged: block %u of %u", i,
                           head.n_blocks);
    }
    return SH_OK;
}
