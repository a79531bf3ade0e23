/* classes.c - see classes.h. */
#include "cli/data/classes.h"

#include "cli/text/out.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#define MAX_CLASSES 100000u /* as of a loss */
#define MAX_FILES (64u << 20)
#define MAX_THREADS 16
#define LOOK_MS 50

struct shot {
    char *name; /* OWNED */
    uint32_t label;
    bool is_broken, is_other_size;
};

struct reading {
    const char *folder;
    const struct classes_plan *plan;
    char **classes; /* OWNED, each and the list */
    struct shot *shots;
    size_t n_classes, cap_classes, n, cap, n_other;
    size_t n_deep;        /* folders within those of classes */
    size_t width, height; /* of all */
    struct setfile *file;
    atomic_size_t next, done;
    atomic_bool stop;
    pthread_mutex_t lock; /* of what follows */
    struct failure {
        size_t shot; /* the first of them; SIZE_MAX: none */
        struct sh_err why;
    } skipped, stopped; /* left out, and what ends the reading */
    size_t n_broken, n_other_size;
};

static void reading_fini(struct reading *r)
{
    for (size_t i = 0; i < r->n_classes; i++)
        free(r->classes[i]);
    for (size_t i = 0; i < r->n; i++)
        free(r->shots[i].name);
    free(r->classes);
    free(r->shots);
    pthread_mutex_destroy(&r->lock);
}

/* ---------------------------------------------------------------- what there is */

static int by_class_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_shot_name(const void *a, const void *b)
{
    return strcmp(((const struct shot *)a)->name, ((const struct shot *)b)->name);
}

static bool is_picture_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
                   strcasecmp(dot, ".png") == 0);
}

static int add_class_name(struct reading *r, const char *name, struct sh_err *err)
{
    int rc = sh_grow(&r->classes, &r->cap_classes, r->n_classes + 1, sizeof(*r->classes),
                     MAX_CLASSES, "classes of a dataset", err);

    if (!rc)
        rc = sh_strdup(name, &r->classes[r->n_classes], err);
    r->n_classes += !rc;
    return rc;
}

static int add_shot(struct reading *r, uint32_t label, const char *name, struct sh_err *err)
{
    int rc = sh_grow(&r->shots, &r->cap, r->n + 1, sizeof(*r->shots), MAX_FILES,
                     "pictures of a dataset", err);

    if (rc)
        return rc;
    r->shots[r->n] = (struct shot){.label = label};
    rc = sh_strdup(name, &r->shots[r->n].name, err);
    r->n += !rc;
    return rc;
}

/* A link to nowhere, mostly. As a picture it is one that cannot be read. */
static int add_gone(struct reading *r, const char *path, uint32_t label, const char *name,
                    struct sh_err *err)
{
    if (label != UINT32_MAX && is_picture_name(name))
        return add_shot(r, label, name, err);
    if (!r->plan->skips || (errno != ENOENT && errno != ELOOP))
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at \"%s/%s\": %m", path, name);
    r->n_other++;
    return SH_OK;
}

/* Each entry that is not hidden, to one of the two lists. label: of the class; UINT32_MAX: of the
 * folder of classes. */
static int list_pictures(struct reading *r, const char *path, uint32_t label, struct sh_err *err)
{
    DIR *dir = opendir(path);
    const struct dirent *e;
    int rc = SH_OK;

    if (!dir)
        return SH_FAIL_ERRNO(err, SH_E_INVALID, "could not open the folder \"%s\": %m", path);
    while (!rc && (errno = 0, e = readdir(dir))) {
        struct stat st;

        if (e->d_name[0] == '.')
            continue;
        if (fstatat(dirfd(dir), e->d_name, &st, 0) != 0)
            rc = add_gone(r, path, label, e->d_name, err);
        else if (label == UINT32_MAX && S_ISDIR(st.st_mode))
            rc = add_class_name(r, e->d_name, err);
        else if (label != UINT32_MAX && S_ISREG(st.st_mode) && is_picture_name(e->d_name))
            rc = add_shot(r, label, e->d_name, err);
        else {
            r->n_other++;
            r->n_deep += S_ISDIR(st.st_mode);
        }
    }
    if (!rc && errno)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the folder \"%s\": %m", path);
    closedir(dir);
    return rc;
}

static int list_class(struct reading *r, uint32_t label, struct sh_err *err)
{
    const size_t first = r->n, deep = r->n_deep;
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/%s", r->folder, r->classes[label]);

    if (!rc)
        rc = list_pictures(r, path, label, err);
    if (!rc && r->n == first)
        rc = SH_FAIL(
            err, SH_E_INVALID, "the folder \"%s\" of a class has no file .jpg, .jpeg or .png%s",
            path, r->n_deep > deep ? ", but folders: if those are the classes, push it alone" : "");
    if (!rc)
        qsort(r->shots + first, r->n - first, sizeof(*r->shots), by_shot_name);
    free(path);
    return rc;
}

static int list_all(struct reading *r, struct sh_err *err)
{
    int rc = list_pictures(r, r->folder, UINT32_MAX, err);

    if (!rc && r->n_classes == 0)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the folder \"%s\" has no folders: wanted is one for each class, with its "
                     "pictures, such as %s/cat/1.jpg",
                     r->folder, r->folder);
    if (!rc)
        qsort(r->classes, r->n_classes, sizeof(*r->classes), by_class_name);
    for (uint32_t i = 0; !rc && i < r->n_classes; i++)
        rc = list_class(r, i, err);
    return rc;
}

/* ---------------------------------------------------------------- reading */

/* *p: OWNED on success. */
static int read_shot(const struct reading *r, size_t i, struct picture *p, struct sh_err *err)
{
    struct sh_err why = {0};
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/%s/%s", r->folder, r->classes[r->shots[i].label],
                         r->shots[i].name);

    *p = (struct picture){.channels = r->plan->channels};
    if (!rc)
        rc = picture_read(path, p, err);
    if (rc) {
        free(path);
        return rc;
    }
    if (picture_shape(p, &r->plan->shape, &why))
        rc = SH_FAIL(err, why.rc, "\"%s\": %s", path, why.msg);
    else if (r->width &&
             (r->shots[i].is_other_size = p->width != r->width || p->height != r->height))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"%s\" is %zu x %zu (width x height), the pictures before it %zu x %zu: give "
                     "--size HEIGHTxWIDTH",
                     path, p->width, p->height, r->width, r->height);
    if (rc)
        picture_fini(p);
    free(path);
    return rc;
}

static bool may_skip(const struct reading *r, int rc)
{
    return r->plan->skips && (rc == SH_E_INVALID || rc == SH_E_UNSUPPORTED || rc == SH_E_TOOBIG);
}

static void note_read_failure(struct reading *r, size_t i, const struct sh_err *why)
{
    const bool skip = may_skip(r, why->rc);
    struct failure *first = skip ? &r->skipped : &r->stopped;

    pthread_mutex_lock(&r->lock);
    if (i < first->shot)
        *first = (struct failure){.shot = i, .why = *why};
    r->n_broken++;
    r->n_other_size += r->shots[i].is_other_size;
    pthread_mutex_unlock(&r->lock);
    r->shots[i].is_broken = true;
    if (!skip)
        atomic_store(&r->stop, true);
}

static size_t sample_bytes(const struct reading *r)
{
    return r->width * r->height * r->plan->channels;
}

static void *read_some_pictures(void *arg)
{
    struct reading *r = arg;
    uint8_t *bytes = malloc(sample_bytes(r));
    size_t i;

    while (!atomic_load(&r->stop) && (i = atomic_fetch_add(&r->next, 1)) < r->n) {
        struct sh_err why = {0};
        struct picture p = {0};
        int rc = bytes ? read_shot(r, i, &p, &why)
                       : SH_FAIL(&why, SH_E_NOMEM, "could not allocate a picture");

        if (!rc) {
            picture_bytes(&p, !r->plan->is_last, bytes);
            rc = setfile_put(r->file, (uint64_t)i * sample_bytes(r), bytes, sample_bytes(r), &why);
        }
        if (rc)
            note_read_failure(r, i, &why);
        picture_fini(&p);
        atomic_fetch_add(&r->done, 1);
    }
    free(bytes);
    return NULL;
}

static int read_pictures(struct cli *c, struct reading *r, struct sh_err *err)
{
    const size_t most = SH_MIN((size_t)SH_MAX(get_nprocs(), 1), r->n);
    pthread_t threads[MAX_THREADS];
    struct progress bar;
    size_t n = 0;
    int e = 0;

    while (n < SH_MIN(most, (size_t)MAX_THREADS) && !e) {
        e = pthread_create(&threads[n], NULL, read_some_pictures, r);
        n += !e;
    }
    progress_begin(c, &bar);
    while (n > 0 && !atomic_load(&r->stop) && atomic_load(&r->done) < r->n) {
        progress_show(&bar, (double)atomic_load(&r->done) / (double)r->n, "reading pictures");
        cli_sleep_ms(LOOK_MS);
    }
    progress_end(&bar);
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    errno = e;
    if (n == 0)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not start a thread that reads pictures: %m");
    return atomic_load(&r->stop) ? sh_err_copy(err, &r->stopped.why) : SH_OK;
}

/* The size of all is that of the first. */
static int find_size(struct reading *r, struct sh_err *err)
{
    struct picture p = {0};
    struct sh_err why = {0};
    int rc = SH_E_INVALID;

    for (size_t i = 0; rc && i < r->n; i++) {
        why = (struct sh_err){0};
        rc = read_shot(r, i, &p, &why);
        if (rc && !may_skip(r, rc))
            break;
    }
    r->width = p.width;
    r->height = p.height;
    picture_fini(&p);
    return rc ? sh_err_copy(err, &why) : SH_OK;
}

/* ---------------------------------------------------------------- the file */

static void classes_describe(const struct reading *r, size_t n, struct sh_st_tensor out[static 2])
{
    const int64_t h = (int64_t)r->height, w = (int64_t)r->width, c = (int64_t)r->plan->channels;
    const int64_t first[] = {(int64_t)n, c, h, w}, last[] = {(int64_t)n, h, w, c};

    out[0] = (struct sh_st_tensor){
        .name = r->plan->tensor, .dtype = SH_U8, .rank = 4, .bytes = n * sample_bytes(r)};
    memcpy(out[0].dims, r->plan->is_last ? last : first, sizeof(first));
    out[1] = (struct sh_st_tensor){.name = r->plan->labels,
                                   .dtype = SH_I64,
                                   .rank = 1,
                                   .dims = {(int64_t)n},
                                   .bytes = n * sizeof(int64_t)};
}

/* Closes the holes that broken ones left. *n: as many as remain. */
static int close_holes(struct reading *r, size_t *n, struct sh_err *err)
{
    const size_t each = sample_bytes(r);
    int rc = SH_OK;

    *n = 0;
    for (size_t i = 0, end; !rc && i < r->n; i = end) {
        for (end = i; end < r->n && !r->shots[end].is_broken; end++)
            ;
        rc = setfile_move(r->file, (uint64_t)*n * each, (uint64_t)i * each,
                          (uint64_t)(end - i) * each, err);
        *n += end - i;
        while (end < r->n && r->shots[end].is_broken)
            end++;
    }
    return rc;
}

static int put_class_labels(struct reading *r, size_t n, struct sh_err *err)
{
    int64_t *labels = calloc(n, sizeof(*labels));
    size_t k = 0;
    int rc;

    if (!labels)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu labels", n);
    for (size_t i = 0; i < r->n; i++)
        if (!r->shots[i].is_broken)
            labels[k++] = r->shots[i].label;
    rc = setfile_put(r->file, (uint64_t)n * sample_bytes(r), labels, n * sizeof(*labels), err);
    free(labels);
    return rc;
}

static int make_classes_file(struct cli *c, struct reading *r, struct classes_told *told,
                             struct sh_err *err)
{
    char *names = setfile_class_names(r->classes, r->n_classes);
    const char *const meta[] = {"classes", names ? names : "[]", NULL};
    struct sh_st_tensor t[2];
    size_t n = 0;
    int rc = names ? SH_OK
                   : SH_FAIL(err, SH_E_INVALID, "the name of a class in \"%s\" is no UTF-8 text",
                             r->folder);

    classes_describe(r, r->n, t);
    if (!rc)
        rc = setfile_new(c->conf->tmp_dir, t, 2, meta, r->file, err);
    if (!rc)
        rc = read_pictures(c, r, err);
    if (!rc)
        rc = close_holes(r, &n, err);
    if (!rc)
        rc = put_class_labels(r, n, err);
    classes_describe(r, n, t);
    if (!rc)
        rc = setfile_end(r->file, t, 2, meta, err);
    *told = (struct classes_told){.n_samples = n,
                                  .n_classes = r->n_classes,
                                  .n_skipped = r->n_broken,
                                  .n_other_size = r->n_other_size,
                                  .n_other = r->n_other};
    sh_strlcpy(told->skipped, r->skipped.why.msg, sizeof(told->skipped));
    free(names);
    return rc;
}

int classes_read(struct cli *c, const char *folder, const struct classes_plan *p,
                 struct setfile *out, struct classes_told *told, struct sh_err *err)
{
    struct reading r = {.folder = folder,
                        .plan = p,
                        .file = out,
                        .skipped.shot = SIZE_MAX,
                        .stopped.shot = SIZE_MAX};
    int rc;

    *out = (struct setfile){.fd = -1};
    pthread_mutex_init(&r.lock, NULL);
    rc = list_all(&r, err);
    if (!rc)
        rc = find_size(&r, err);
    if (!rc)
        rc = make_classes_file(c, &r, told, err);
    reading_fini(&r);
    return rc;
}
