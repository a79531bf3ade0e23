/* seen.c - see seen.h. */
#include "executor/seen.h"

#include "common/log.h"
#include "common/mem.h"
#include "executor/model_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int path_of(const struct model *m, char **out, struct sh_err *err)
{
    const struct exec_conf *c = store__exec(m->store)->conf;
    const char *slash = strrchr(m->package, '/');

    return sh_asprintf(err, out, "%s/shapes/%s.%s", c->state_dir, c->name,
                       slash ? slash + 1 : m->package);
}

static size_t most(const struct model *m)
{
    return (size_t)SH_MAX(store__exec(m->store)->conf->model_shapes / 2, 1);
}

static bool read_line(char *line, struct sh_sizes *out)
{
    char *rest = line, *p;

    *out = (struct sh_sizes){0};
    while ((p = strsep(&rest, " \n"))) {
        int64_t v;

        if (!*p)
            continue;
        if (out->n == SH_MAX_SYMBOLS || sh_parse_i64(p, 1, INT32_MAX, "size", &v, NULL))
            return false;
        out->v[out->n++] = (uint32_t)v;
    }
    return out->n > 0;
}

void seen_bring(struct model *m)
{
    struct sh_err err = {0};
    char *path = NULL, line[SH_MAX_SYMBOLS * 12];
    FILE *f = NULL;

    if (m->handle < 0 || m->sizes.n == 0)
        return;
    if (path_of(m, &path, &err))
        sh_log_err(SH_LOG_WARN, "shapes.seen", &err);
    else
        f = fopen(path, "re");
    for (size_t i = 0; f && i < most(m) && fgets(line, sizeof(line), f); i++) {
        struct model *shape;
        struct sh_sizes z;

        if (read_line(line, &z))
            store_shape(m, &z, &shape, NULL);
    }
    if (f)
        fclose(f);
    free(path);
}

static int by_runs(const void *a, const void *b)
{
    const struct model *x = *(struct model *const *)a, *y = *(struct model *const *)b;

    return x->n_runs != y->n_runs ? (x->n_runs < y->n_runs ? 1 : -1)
                                  : (x->handle < y->handle ? 1 : -1);
}

static void put(FILE *f, struct model *const *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < shapes[i]->sizes.n; k++)
            fprintf(f, "%s%" PRIu32, k ? " " : "", shapes[i]->sizes.v[k]);
        fputc('\n', f);
    }
}

/* Under its name when it is whole; there is no fsync: what a crash leaves is read with care. */
static int write_all(const struct model *m, struct model **shapes, size_t n, struct sh_err *err)
{
    char *path = NULL, *part = NULL;
    FILE *f = NULL;
    int rc = path_of(m, &path, err);

    qsort(shapes, n, sizeof(*shapes), by_runs);
    if (!rc)
        rc = sh_asprintf(err, &part, "%s.part", path);
    if (!rc)
        f = fopen(part, "we");
    if (f)
        put(f, shapes, SH_MIN(n, most(m)));
    if (!rc && (!f || fclose(f) != 0 || rename(part, path) < 0))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write down the shapes of a version");
    free(part);
    free(path);
    return rc;
}

void seen_second(struct store *s)
{
    struct model **shapes = NULL;

    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        struct sh_err err = {0};
        size_t n = 0;

        if (!m->has_new_shapes || m->phase != MODEL_READY || m->handle < 0)
            continue;
        if (!shapes)
            shapes = calloc(STORE_MAX_SHAPES, sizeof(struct model *));
        for (struct model *h = store_next_shape(s, NULL); shapes && h; h = store_next_shape(s, h))
            if (h->base == m && h->phase == MODEL_READY && n < STORE_MAX_SHAPES)
                shapes[n++] = h;
        m->has_new_shapes = false;
        if (shapes &&
            write_all(m, shapes, n, &err)) /* after the next start they are compiled late */
            sh_log_err(SH_LOG_WARN, "shapes.seen", &err);
        break; /* one file a second */
    }
    free(shapes);
}

void seen_forget(struct model *m)
{
    char *path = NULL;

    if (m->handle > 0 && m->sizes.n && path_of(m, &path, NULL) == SH_OK)
        unlink(path);
    free(path);
}
