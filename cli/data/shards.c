/* shards.c - see arrays.h. */
#include "cli/data/arrays.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)1 << 24)

struct shards {
    char **files; /* BORROWED */
    struct sh_st **list;
    size_t n;
    struct sh_st_tensor *all; /* the first one's, with the samples of all */
    size_t n_all;
};

static void shards_fini(struct shards *s)
{
    for (size_t i = 0; s->list && i < s->n; i++)
        sh_st_close(s->list[i]);
    free(s->list);
    free(s->all);
}

static int shard_differs(const struct shards *s, size_t k, const char *name, struct sh_err *err)
{
    return SH_FAIL(
        err, SH_E_INVALID,
        "\"%s\" and \"%s\" are no parts of one dataset: tensor \"%.80s\" is not in both, "
        "or of another type or shape behind the axis of the samples",
        s->files[0], s->files[k], name);
}

/* The samples of shard k join those before it. */
static int add_shard(struct shards *s, size_t k, struct sh_err *err)
{
    const size_t n = sh_st_count(s->list[k]);
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < n; i++) {
        const struct sh_st_tensor *t = sh_st_at(s->list[k], i);
        const struct sh_st_tensor *first = sh_st_find(s->list[k], s->all[0].name);

        if (t->rank < 1 || t->dims[0] < 1 || (first && t->dims[0] != first->dims[0]))
            rc = SH_FAIL(err, SH_E_INVALID,
                         "tensor \"%.80s\" of \"%s\" has not as many samples as the others",
                         t->name, s->files[k]);
    }
    for (size_t i = 0; !rc && i < s->n_all; i++) {
        struct sh_st_tensor *to = &s->all[i];
        const struct sh_st_tensor *t = sh_st_find(s->list[k], to->name);

        if (!t || n != s->n_all || t->dtype != to->dtype || t->rank != to->rank ||
            memcmp(t->dims + 1, to->dims + 1, (t->rank - 1) * sizeof(t->dims[0])) != 0)
            return shard_differs(s, k, to->name, err);
        if (k > 0) {
            if (__builtin_add_overflow(to->dims[0], t->dims[0], &to->dims[0]))
                return SH_FAIL(err, SH_E_TOOBIG,
                               "with \"%s\" the dataset has more samples than are counted",
                               s->files[k]);
            rc = sh_add_size(to->bytes, t->bytes, &to->bytes, err);
        }
    }
    return rc;
}

static int open_shards(struct shards *s, struct sh_err *err)
{
    int rc = SH_OK;

    s->list = calloc(s->n, sizeof(struct sh_st *));
    if (!s->list)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of files");
    for (size_t k = 0; !rc && k < s->n; k++) {
        struct sh_err why = {0};

        rc = sh_st_open(s->files[k], &s->list[k], &why);
        if (rc)
            return SH_FAIL(err, rc, "\"%s\": %s", s->files[k], why.msg);
        if (k == 0) {
            s->n_all = sh_st_count(s->list[0]);
            s->all = calloc(s->n_all + 1, sizeof(*s->all));
            if (!s->all)
                return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of tensors");
            for (size_t i = 0; i < s->n_all; i++)
                s->all[i] = *sh_st_at(s->list[0], i);
        }
        if (s->n_all == 0)
            return SH_FAIL(err, SH_E_INVALID, "\"%s\" has no tensor", s->files[k]);
        rc = add_shard(s, k, err);
    }
    return rc;
}

static int copy_all(const struct shards *s, struct setfile *out, struct sh_err *err)
{
    uint64_t at = 0;
    int rc = SH_OK;

    for (size_t i = 0; i < s->n_all; i++)
        for (size_t k = 0; k < s->n; k++) {
            const struct sh_st_tensor *t = sh_st_find(s->list[k], s->all[i].name);

            for (size_t done = 0; !rc && done < t->bytes; done += CHUNK)
                rc = setfile_put(out, at + done, (const char *)t->data + done,
                                 SH_MIN(t->bytes - done, CHUNK), err);
            if (rc)
                return rc;
            at += t->bytes;
        }
    return rc;
}

int shards_read(struct cli *c, char **files, size_t n, struct setfile *out, struct sh_err *err)
{
    struct shards s = {.files = files, .n = n};
    const char *classes;
    int rc = open_shards(&s, err);

    *out = (struct setfile){.fd = -1};
    classes = rc ? NULL : sh_st_meta(s.list[0], "classes");
    for (size_t k = 1; !rc && k < n; k++) {
        const char *other = sh_st_meta(s.list[k], "classes");

        if (!classes != !other || (classes && strcmp(classes, other) != 0))
            rc = SH_FAIL(err, SH_E_INVALID,
                         "\"%s\" and \"%s\" have different classes in their metadata", files[0],
                         files[k]);
    }
    if (!rc) {
        const char *const meta[] = {classes ? "classes" : NULL, classes, NULL};

        rc = setfile_new(c->conf->tmp_dir, s.all, s.n_all, meta, out, err);
        if (!rc)
            rc = copy_all(&s, out, err);
        if (!rc)
            rc = setfile_end(out, s.all, s.n_all, meta, err);
    }
    shards_fini(&s);
    return rc;
}
