/* content.c - see content.h. */
#include "tests/sim/content.h"

#include "common/mem.h"
#include "common/safetensors.h"
#include "tests/sim/disk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TENANT_AT 52
#define KIND_AT 48
#define REST_MASK ((UINT64_C(1) << KIND_AT) - 1)
#define JOB_AT 36
#define JOB_MASK UINT64_C(0xfff)
#define STEP_AT 16
#define STEP_MASK ((UINT64_C(1) << 20) - 1)
#define STATE_AT_MASK ((UINT64_C(1) << STEP_AT) - 1)
#define IMAGE_AT_MASK ((UINT64_C(1) << 24) - 1)
#define BLOCK_WORDS 32
#define ALIKE_WORDS 512u      /* a page, so that equal chunks are whole ones (share.h) */
#define DATASET_ID (1u << 20) /* packages and datasets have different names */

uint64_t sim_mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

unsigned sim_stem(const struct sim_package *p)
{
    return p->id % SIM_SIBLING;
}

uint64_t sim_word(unsigned tenant, enum sim_kind kind, uint64_t rest)
{
    return (uint64_t)tenant << TENANT_AT | (uint64_t)kind << KIND_AT | (rest & REST_MASK);
}

unsigned sim_word_tenant(uint64_t word)
{
    return (unsigned)(word >> TENANT_AT);
}

/* Most of what a simulation does is to look at words like these: many at a time, without a branch
 * between them. `first` is the word at place 0; a mask has bits for so many places. */
static bool is_block(const uint64_t *words, uint64_t first)
{
    uint64_t bad = 0;

    for (uint64_t k = 0; k < BLOCK_WORDS; k++)
        bad |= words[k] ^ (first + k);
    return !bad;
}

static size_t look(const uint64_t *words, size_t n, uint64_t first, size_t at, uint64_t mask)
{
    for (size_t i = 0; i < n;) {
        const uint64_t place = (at + i) & mask;

        if (i + BLOCK_WORDS <= n && place + BLOCK_WORDS <= mask &&
            is_block(words + i, first + place))
            i += BLOCK_WORDS;
        else if (words[i] == first + place)
            i++;
        else
            return i;
    }
    return n;
}

static void fill(uint64_t *words, size_t n, uint64_t first, size_t at, uint64_t mask)
{
    for (size_t i = 0; i < n; i++)
        words[i] = first + ((at + i) & mask);
}

static uint64_t image_word(const struct sim_package *p, enum sim_kind kind)
{
    return sim_word(p->tenant, kind, (uint64_t)p->id << 24);
}

/* Siblings have so much of it in common. No layer that they have so packed is longer than it
 * (packing.c). */
static size_t n_alike(const struct sim_package *p, enum sim_kind kind, size_t at, size_t n)
{
    const uint64_t chunks = 5 * (1 + sim_mix(p->tenant, sim_stem(p)) % 10);
    const size_t alike = (size_t)(kind == SIM_PACKED ? chunks * 2 / 5 : chunks) * ALIKE_WORDS;

    return at < alike ? SH_MIN(n, alike - at) : 0;
}

static uint64_t stem_word(const struct sim_package *p, enum sim_kind kind)
{
    const struct sim_package stem = {.tenant = p->tenant, .id = sim_stem(p)};

    return image_word(&stem, kind);
}

static size_t look_alike(const struct sim_package *p, enum sim_kind kind, const uint64_t *words,
                         size_t at, size_t n)
{
    const size_t head = n_alike(p, kind, at, n);
    const size_t i = look(words, head, stem_word(p, kind), at, IMAGE_AT_MASK);

    if (i < head)
        return i;
    return head + look(words + head, n - head, image_word(p, kind), at + head, IMAGE_AT_MASK);
}

static void fill_alike(const struct sim_package *p, enum sim_kind kind, uint64_t *words, size_t at,
                       size_t n)
{
    const size_t head = n_alike(p, kind, at, n);

    fill(words, head, stem_word(p, kind), at, IMAGE_AT_MASK);
    fill(words + head, n - head, image_word(p, kind), at + head, IMAGE_AT_MASK);
}

size_t sim_image_look(const struct sim_package *p, const uint64_t *words, size_t at, size_t n)
{
    return look_alike(p, SIM_IMAGE, words, at, n);
}

void sim_image_fill(const struct sim_package *p, uint64_t *words, size_t at, size_t n)
{
    fill_alike(p, SIM_IMAGE, words, at, n);
}

size_t sim_packed_look(const struct sim_package *p, const uint64_t *words, size_t at, size_t n)
{
    return look_alike(p, SIM_PACKED, words, at, n);
}

void sim_packed_fill(const struct sim_package *p, uint64_t *words, size_t at, size_t n)
{
    fill_alike(p, SIM_PACKED, words, at, n);
}

void sim_spend(const struct sim_package *p, uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        words[i] = image_word(p, SIM_SPENT);
}

static uint64_t state_word(unsigned tenant, int64_t job, int64_t step)
{
    return sim_word(tenant, SIM_STATE,
                    ((uint64_t)job & JOB_MASK) << JOB_AT | ((uint64_t)step & STEP_MASK) << STEP_AT);
}

size_t sim_state_look(unsigned tenant, int64_t job, int64_t step, const uint64_t *words, size_t at,
                      size_t n)
{
    return look(words, n, state_word(tenant, job, step), at, STATE_AT_MASK);
}

void sim_state_fill(unsigned tenant, int64_t job, int64_t step, uint64_t *words, size_t at,
                    size_t n)
{
    fill(words, n, state_word(tenant, job, step), at, STATE_AT_MASK);
}

size_t sim_state_written(int64_t job, size_t words)
{
    static const size_t PARTS[] = {SIM_STATE_PARTS, 10, 4};

    return words * PARTS[job % 3] / SIM_STATE_PARTS;
}

int64_t sim_state_job(uint64_t word)
{
    return (int64_t)(word >> JOB_AT & JOB_MASK);
}

int64_t sim_state_step(uint64_t word)
{
    return (int64_t)(word >> STEP_AT & STEP_MASK);
}

void sim_fill_input(unsigned tenant, uint64_t rid, void *to, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        const uint64_t w = sim_word(tenant, SIM_INPUT, sim_mix(rid, i));

        memcpy((char *)to + i * sizeof(w), &w, sizeof(w));
    }
}

void sim_fill_output(const struct sim_package *p, const void *in, size_t in_bytes, void *to,
                     size_t bytes)
{
    const size_t n_in = in_bytes / sizeof(uint64_t);

    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        uint64_t w = 0;

        if (n_in)
            memcpy(&w, (const char *)in + i % n_in * sizeof(w), sizeof(w));
        w = sim_word(p->tenant, SIM_OUTPUT, sim_mix(sim_mix(p->id, i), w));
        memcpy((char *)to + i * sizeof(w), &w, sizeof(w));
    }
}

bool sim_is_of(unsigned tenant, const void *p, size_t bytes, size_t *at_out)
{
    const uint64_t *w = p;

    for (size_t i = 0; i < bytes / sizeof(*w); i++)
        if (w[i] && sim_word_tenant(w[i]) != tenant) {
            *at_out = i;
            return false;
        }
    return true;
}

/* ------------------------------------------------------------------ files */

__attribute__((noreturn)) static void no_file(const char *path)
{
    fprintf(stderr, "sim: could not write %s: %m\n", path);
    exit(2);
}

void sim_package_text(const struct sim_package *p, char out[static 96])
{
    snprintf(out, 96, "{\"sim\":\"%s\",\"tenant\":%u,\"id\":%u,\"size\":%u}\n", p->model, p->tenant,
             p->id, p->own_size);
}

bool sim_package_read(int fd, struct sim_package *out)
{
    char text[96];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "{\"sim\":\"%31[^\"]\",\"tenant\":%u,\"id\":%u,\"size\":%u}", out->model,
                  &out->tenant, &out->id, &out->own_size) == 4;
}

/* As long as a SHA-256. */
static void name_of(unsigned tenant, unsigned id, char out[static 65])
{
    uint64_t w = sim_mix(tenant, id);

    for (size_t i = 0; i < 4; i++, w = sim_mix(w, i))
        snprintf(out + 16 * i, 17, "%016" PRIx64, w);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof(path), "%.400s/%.100s", dir, name);
    f = fopen(path, "we");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        no_file(path);
}

static void make_folders(const char *state_dir)
{
    static const char *const NAMES[] = {"", "/blobs", "/blobs/packages", "/blobs/datasets",
                                        "/jobs"};
    char path[512];

    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        snprintf(path, sizeof(path), "%.400s%s", state_dir, NAMES[i]);
        mkdir(path, 0750);
    }
}

void sim_package_make(const char *state_dir, const struct sim_package *p, char path[static 96])
{
    char name[65], dir[512], text[96];

    sim_disk_spare(true);
    make_folders(state_dir);
    name_of(p->tenant, p->id, name);
    snprintf(path, 96, "packages/%s", name);
    snprintf(dir, sizeof(dir), "%.380s/blobs/%s", state_dir, path);
    if (mkdir(dir, 0750) == 0) {
        sim_package_text(p, text);
        write_text(dir, "graph.json", text);
        write_text(dir, "model.onnx", text);
        write_text(dir, "weights.safetensors", text);
    }
    sim_disk_spare(false);
}

void sim_dataset_sample(unsigned tenant, unsigned id, int64_t i, void *to, size_t bytes)
{
    sim_fill_input(tenant, ((uint64_t)id << 32) + (uint64_t)i, to, bytes);
}

void sim_dataset_make(const char *state_dir, unsigned tenant, unsigned id, size_t sample_bytes,
                      int64_t n, char path[static 96])
{
    struct sh_st_tensor t[] = {{.name = "input",
                                .dtype = SH_F32,
                                .rank = 2,
                                .dims = {n, (int64_t)(sample_bytes / sizeof(float))},
                                .bytes = sample_bytes * (size_t)n},
                               {.name = "label",
                                .dtype = SH_I64,
                                .rank = 1,
                                .dims = {n},
                                .bytes = sizeof(int64_t) * (size_t)n}};
    char name[65], full[512];
    struct sh_err err = {0};
    char *data = malloc(t[0].bytes + 1);
    int64_t *labels = calloc((size_t)n + 1, sizeof(*labels));

    make_folders(state_dir);
    name_of(tenant, DATASET_ID + id, name);
    snprintf(path, 96, "datasets/%s.safetensors", name);
    snprintf(full, sizeof(full), "%.380s/blobs/%s", state_dir, path);
    if (!data || !labels)
        no_file(full);
    for (int64_t i = 0; i < n; i++)
        sim_dataset_sample(tenant, id, i, data + sample_bytes * (size_t)i, sample_bytes);
    t[0].data = data;
    t[1].data = (const char *)labels;
    sim_disk_spare(true);
    if (access(full, F_OK) != 0 && sh_st_write(full, t, 2, NULL, &err))
        no_file(full);
    sim_disk_spare(false);
    free(data);
    free(labels);
}
