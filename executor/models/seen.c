/* seen.c - see seen.h. */
#include "executor/models/seen.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "executor/models/model_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE_BYTES (SH_MAX_SYMBOLS * 12 + 24)

static int seen_path(const struct model *m, char **out, struct sh_err *err)
{
    const struct store_env *env = store__env(m->store);
    const char *slash = strrchr(m->package, '/');

    return sh_asprintf(err, out, "%s/shapes/%s.%s", env->files->state_dir, env->executor,
                       slash ? slash + 1 : m->package);
}

/* ------------------------------------------------------------------ counts */

static void halve(struct seen *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        s->shapes[n] = s->shapes[i];
        s->shapes[n].n /= 2;
        n += s->shapes[n].n > 0;
    }
    s->n = n;
}

/* Where to count these sizes; NULL without memory. */
static struct seen_shape *find_seen(struct seen *s, const struct sh_sizes *sizes)
{
    struct seen_shape *least = NULL;

    if (!s->shapes)
        s->shapes = calloc(SEEN_MAX, sizeof(*s->shapes));
    if (!s->shapes)
        return NULL;
    for (size_t i = 0; i < s->n; i++) {
        if (memcmp(&s->shapes[i].sizes, sizes, sizeof(*sizes)) == 0)
            return &s->shapes[i];
        if (!least || s->shapes[i].n < least->n)
            least = &s->shapes[i];
    }
    if (s->n < SEEN_MAX) {
        least = &s->shapes[s->n++];
        least->n = 0;
    }
    least->sizes = *sizes;
    return least;
}

static void count_seen(struct seen *s, const struct sh_sizes *sizes, uint64_t by)
{
    struct seen_shape *one = find_seen(s, sizes);
    uint64_t sum = 0;

    if (!one)
        return;
    one->n += by;
    s->has_changed = true;
    for (size_t i = 0; i < s->n; i++)
        sum += s->shapes[i].n;
    if (sum >= SEEN_SUM)
        halve(s);
}

void seen_count(struct model *version, const struct sh_sizes *sizes)
{
    if (version->handle > 0 && sizes->n > 0)
        count_seen(&version->seen, sizes, 1);
}

/* ------------------------------------------------------------------ from the file */

/* "count: size size", or of an older executor "size size". */
static bool read_seen_line(char *line, struct seen_shape *out)
{
    char *colon = strchr(line, ':'), *rest = colon ? colon + 1 : line, *p;
    int64_t n = 1;

    *out = (struct seen_shape){0};
    if (colon)
        *colon = '\0';
    if (colon && sh_parse_i64(line, 1, SEEN_SUM, "count", &n, NULL))
        return false;
    out->n = (uint64_t)n;
    while ((p = strsep(&rest, " \n"))) {
        int64_t v;

        if (!*p)
            continue;
        if (out->sizes.n == SH_MAX_SYMBOLS || sh_parse_i64(p, 1, INT32_MAX, "size", &v, NULL))
            return false;
        out->sizes.v[out->sizes.n++] = (uint32_t)v;
    }
    return out->sizes.n > 0;
}

void seen_bring(struct model *m)
{
    const size_t most = (size_t)SH_MAX(store__env(m->store)->max_shapes / 2, 1);
    struct sh_err err = {0};
    char *path = NULL, line[LINE_BYTES];
    size_t n = 0;
    FILE *f = NULL;

    if (m->handle < 0 || m->sizes.n == 0)
        return;
    if (seen_path(m, &path, &err))
        sh_log_err(SH_LOG_WARN, "shapes.seen", &err);
    else
        f = fopen(path, "re");
    for (size_t i = 0; f && i < SEEN_MAX && fgets(line, sizeof(line), f); i++) {
        struct model *shape;
        struct seen_shape one;

        if (!read_seen_line(line, &one) || one.sizes.n != m->sizes.n)
            continue;
        count_seen(&m->seen, &one.sizes, one.n);
        if (n < most && store_shape(m, &one.sizes, &shape, NULL) == SH_OK)
            n += shape != m;
    }
    if (f)
        fclose(f);
    m->seen.has_changed = false;
    free(path);
}

/* ------------------------------------------------------------------ to the file */

static int by_count(const void *a, const void *b)
{
    const struct seen_shape *x = a, *y = b;

    return x->n == y->n ? 0 : x->n < y->n ? 1 : -1;
}

static void put_seen(FILE *f, const struct seen *s)
{
    for (size_t i = 0; i < s->n; i++) {
        fprintf(f, "%" PRIu64 ":", s->shapes[i].n);
        for (uint32_t k = 0; k < s->shapes[i].sizes.n; k++)
            fprintf(f, " %" PRIu32, s->shapes[i].sizes.v[k]);
        fputc('\n', f);
    }
}

/* Under its name when it is whole; there is no fsync: what a crash leaves is read with care. */
static int write_seen(struct model *m, struct sh_err *err)
{
    char *path = NULL, *part = NULL;
    FILE *f = NULL;
    int rc = seen_path(m, &path, err);

    qsort(m->seen.shapes, m->seen.n, sizeof(m->seen.shapes[0]), by_count);
    if (!rc)
        rc = sh_asprintf(err, &part, "%s.part", path);
    if (!rc)
        f = fopen(part, "we");
    if (f)
        put_seen(f, &m->seen);
    if (!rc && (!f || fclose(f) != 0 || rename(part, path) < 0))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write down the shapes of a version");
    free(part);
    free(path);
    return rc;
}

void seen_second(struct store *s)
{
    const int64_t now = sh_clock_ns();

    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        struct sh_err err = {0};

        if (!m->seen.has_changed || m->phase != MODEL_READY ||
            (m->seen.written_ns && now - m->seen.written_ns < SEEN_WRITE_NS))
            continue;
        m->seen.has_changed = false;
        m->seen.written_ns = now;
        if (write_seen(m, &err)) /* after the next start they are compiled late */
            sh_log_err(SH_LOG_WARN, "shapes.seen", &err);
        return; /* one file a second */
    }
}

void seen_forget(struct model *m)
{
    char *path = NULL;

    if (m->handle > 0 && m->sizes.n && seen_path(m, &path, NULL) == SH_OK)
        unlink(path);
    free(path);
}
