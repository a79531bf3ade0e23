/* ledger.c - see ledger.h. */
#include "executor/report/ledger.h"

#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".usage"
#define UNMADE "new-"           /* a file before it is whole */
#define UNREADABLE "unreadable" /* the last such file, for people */
#define MAGIC UINT64_C(0x3165676173755348)
#define HEAD_BYTES 4096u
#define N_HINTS 256u
#define N_TRIES 3

/* What a row is: free, open, or the number of its batch. The first number is 2. */
enum { ROW_FREE, ROW_OPEN, ROW_FIRST_NUMBER };
/* What a file may say; none of it can be reached by counting. The scheduler takes no number from
 * INT64_MAX on, and what is computed with the others has to stay a number. */
#define NUMBER_END (UINT64_C(1) << 62)
#define MINUTE_END (INT64_C(1) << 40)
#define SUM_END (INT64_C(1) << 60)

struct sums {
    int64_t gpu_ns, requests, samples, step;
};

struct row {
    _Atomic uint64_t is;
    int64_t minute;
    uint32_t kind, reserved;
    int64_t id;
    char tenant[64];
    _Atomic uint64_t which; /* of these two; the other one is being written */
    struct sums sums[2];
};

struct head {
    uint64_t magic;
    uint32_t row_bytes, n_rows;
    char source[LEDGER_NAME];
    char pad[7];
    _Atomic uint64_t next; /* number */
    uint64_t inode;        /* of this file; 0: of an earlier release. A copy has another one */
};

struct ledger {
    char *path; /* OWNED; NULL: in memory */
    int fd;     /* has the lock; -1: in memory */
    struct head *head;
    struct row *rows;
    size_t n_high; /* rows from here on are free */
    uint16_t hints[N_HINTS];
    uint64_t merged, dropped;
};

static size_t ledger_bytes(void)
{
    return HEAD_BYTES + LEDGER_ROWS * sizeof(struct row);
}

/* A kill comes between two instructions: the order of the program is all that has to be kept. */
static void order_stores(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

static void set_cell(_Atomic uint64_t *to, uint64_t v)
{
    order_stores();
    atomic_store_explicit(to, v, memory_order_relaxed);
    order_stores();
}

static uint64_t get_cell(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

/* ------------------------------------------------------------------ files */

static int map_ledger(struct ledger *l, int fd, struct sh_err *err)
{
    void *p = mmap(NULL, ledger_bytes(), PROT_READ | PROT_WRITE,
                   fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not map what was used");
    l->head = p;
    l->rows = (struct row *)((char *)p + HEAD_BYTES);
    return SH_OK;
}

static bool is_ours(const struct head *h)
{
    bool good = h->magic == MAGIC && h->row_bytes == sizeof(struct row) &&
                h->n_rows == LEDGER_ROWS && h->source[LEDGER_NAME - 1] == '\0' &&
                get_cell(&h->next) < NUMBER_END;

    for (size_t i = 0; good && i < LEDGER_NAME - 1; i++)
        good = sh_hex_digit(h->source[i]) >= 0;
    return good;
}

static bool is_row_sum(int64_t n)
{
    return n >= 0 && n < SUM_END;
}

static bool is_row_whole(const struct row *r)
{
    const struct sums *s;

    if (get_cell(&r->which) > 1 || get_cell(&r->is) >= NUMBER_END || r->kind > MSG_USAGE_JOB ||
        r->tenant[sizeof(r->tenant) - 1] || r->minute < 0 || r->minute >= MINUTE_END)
        return false;
    s = &r->sums[get_cell(&r->which)];
    return is_row_sum(s->gpu_ns) && is_row_sum(s->requests) && is_row_sum(s->samples) &&
           is_row_sum(s->step);
}

static int new_source(char out[LEDGER_NAME], struct sh_err *err)
{
    uint8_t random[(LEDGER_NAME - 1) / 2];
    int rc = sh_random(random, sizeof(random), err);

    if (!rc)
        sh_hex(random, sizeof(random), out);
    return rc;
}

/* Somebody has copied the folder, or moved it. The first file may be counted from, too: of two
 * batches with one number and one source the database takes one, and the other would be lost. So
 * this one is a source of its own from now on. */
static int note_copy(struct ledger *l, const struct stat *st, struct sh_err *err)
{
    const bool is_copy = l->head->inode && l->head->inode != (uint64_t)st->st_ino;
    char source[LEDGER_NAME];
    size_t n = 0;
    int rc = is_copy ? new_source(source, err) : SH_OK;

    if (rc)
        return rc;
    if (is_copy) {
        for (size_t i = 0; i < LEDGER_ROWS; i++)
            n += get_cell(&l->rows[i].is) != ROW_FREE;
        SH_ERROR("usage.copy",
                 "file=%s source=%s new_source=%s rows=%zu msg=\"this is a copy of another file; "
                 "what was not in the database when it was copied is counted here, too, if its "
                 "first owner still runs\"",
                 l->path, l->head->source, source, n);
        memcpy(l->head->source, source, LEDGER_NAME);
    }
    l->head->inode = (uint64_t)st->st_ino;
    return SH_OK;
}

/* Rows and numbers as a process left them that may have been anywhere. */
static void adopt_ledger(struct ledger *l)
{
    uint64_t next = SH_MAX(get_cell(&l->head->next), (uint64_t)ROW_FIRST_NUMBER);
    size_t n_bad = 0;

    for (size_t i = 0; i < LEDGER_ROWS; i++) {
        struct row *r = &l->rows[i];

        if (get_cell(&r->is) == ROW_FREE)
            continue;
        if (!is_row_whole(r)) {
            set_cell(&r->is, ROW_FREE);
            n_bad++;
            continue;
        }
        l->n_high = i + 1;
        next = SH_MAX(next, get_cell(&r->is) + 1);
    }
    set_cell(&l->head->next, next);
    if (n_bad)
        SH_ERROR("usage.rows", "file=%s rows=%zu msg=\"cannot be read, and are not counted\"",
                 l->path, n_bad);
}

/* What is no ledger goes out of the way. */
static void put_away(const char *folder, const char *path)
{
    char to[PATH_MAX];

    SH_ERROR("usage.file",
             "file=%s msg=\"not what this release writes; it is kept as " UNREADABLE "\"", path);
    if ((size_t)snprintf(to, sizeof(to), "%s/" UNREADABLE, folder) >= sizeof(to) ||
        rename(path, to) < 0)
        unlink(path);
}

/* The lock of the file of this name, if nobody has it and it is still the one of this name. -1 with
 * errno: EWOULDBLOCK where that is not so. */
static int lock_ledger(const char *path, int flags, struct stat *st)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0640);

    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, st) < 0 || st->st_nlink == 0 ||
        !S_ISREG(st->st_mode)) {
        close(fd);
        errno = EWOULDBLOCK;
        return -1;
    }
    return fd;
}

static struct ledger *ledger_new(void)
{
    struct ledger *l = calloc(1, sizeof(*l));

    if (l)
        l->fd = -1;
    return l;
}

/* Else to count could be what finds the disk full, and that ends the process. */
static int reserve(int fd, const char *path, struct sh_err *err)
{
    errno = posix_fallocate(fd, 0, (off_t)ledger_bytes());
    return errno ? SH_FAIL_ERRNO(err, SH_E_DISKFULL, "could not reserve %s", path) : SH_OK;
}

/* *out is NULL: it is somebody's, or none. */
static int open_ledger(const char *folder, const char *path, struct ledger **out,
                       struct sh_err *err)
{
    struct ledger *l = ledger_new();
    struct stat st;
    int rc = SH_OK;

    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a ledger");
    l->fd = lock_ledger(path, 0, &st);
    if (l->fd < 0 && errno != EWOULDBLOCK && errno != ENOENT)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open %s: what it holds is not counted", path);
    if (l->fd < 0)
        goto out;
    if (st.st_size == (off_t)ledger_bytes()) {
        rc = reserve(l->fd, path, err); /* a copy may have holes */
        if (!rc)
            rc = map_ledger(l, l->fd, err);
        if (!rc)
            rc = sh_strdup(path, &l->path, err);
        if (rc)
            goto out;
        if (is_ours(l->head)) {
            rc = note_copy(l, &st, err);
            if (rc)
                goto out;
            adopt_ledger(l);
            *out = l;
            return SH_OK;
        }
    }
    put_away(folder, path);
out:
    ledger_close(l);
    return rc;
}

/* Of who was killed while it was made. One that somebody is about to lock is made once more. */
static void remove_unmade(const char *path)
{
    struct stat st;
    int fd = lock_ledger(path, 0, &st);

    if (fd < 0)
        return;
    unlink(path);
    close(fd);
}

int ledger_adopt(const char *folder, struct ledger **out, struct sh_err *err)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    int rc = SH_OK;

    *out = NULL;
    if (!d)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read the folder %s", folder);
    while (!*out && (e = readdir(d))) {
        size_t n = strlen(e->d_name), m = sizeof(SUFFIX) - 1;
        char path[PATH_MAX];
        int one;

        if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) >= sizeof(path))
            continue;
        if (strncmp(e->d_name, UNMADE, sizeof(UNMADE) - 1) == 0)
            remove_unmade(path);
        if (n <= m || strcmp(e->d_name + n - m, SUFFIX) != 0)
            continue;
        one = open_ledger(folder, path, out, rc ? NULL : err);
        rc = rc ? rc : one; /* another one may be better */
    }
    closedir(d);
    return *out ? SH_OK : rc;
}

static void init_ledger_head(struct ledger *l, const char *source)
{
    l->head->magic = MAGIC;
    l->head->row_bytes = sizeof(struct row);
    l->head->n_rows = LEDGER_ROWS;
    memcpy(l->head->source, source, LEDGER_NAME);
    set_cell(&l->head->next, ROW_FIRST_NUMBER);
}

/* It has its name when it is whole, and the lock before. */
static int make_ledger_file(struct ledger *l, const char *folder, const char *source,
                            struct sh_err *err)
{
    char *unmade = NULL;
    struct stat st;
    int rc = sh_asprintf(err, &l->path, "%s/%s" SUFFIX, folder, source);

    if (!rc)
        rc = sh_asprintf(err, &unmade, "%s/" UNMADE "%s", folder, source);
    if (rc)
        goto out;
    l->fd = lock_ledger(unmade, O_CREAT | O_EXCL, &st);
    if (l->fd < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make %s", unmade);
        goto out;
    }
    rc = reserve(l->fd, unmade, err);
    if (!rc)
        rc = map_ledger(l, l->fd, err);
    if (!rc) {
        init_ledger_head(l, source);
        l->head->inode = (uint64_t)st.st_ino;
        if (rename(unmade, l->path) < 0)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not rename %s", unmade);
    }
    if (rc)
        unlink(unmade);
out:
    free(unmade);
    return rc;
}

/* A file with the lock, or memory alone. */
static int make_ledger(const char *folder, struct ledger **out, struct sh_err *err)
{
    char source[LEDGER_NAME];
    struct sh_err why = {0};
    struct ledger *l = NULL;
    int rc = SH_E_IO;

    for (int i = 0; i < N_TRIES && rc == SH_E_IO; i++) {
        ledger_close(l);
        l = ledger_new();
        rc = l ? new_source(source, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a ledger");
        if (rc)
            goto out;
        rc = make_ledger_file(l, folder, source, &why);
    }
    if (rc) {
        sh_log_err(SH_LOG_ERROR, "usage.file", &why);
        ledger_close(l);
        l = ledger_new();
        rc = l ? map_ledger(l, -1, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a ledger");
        if (!rc)
            init_ledger_head(l, source);
    }
    if (rc)
        goto out;
    *out = l;
    l = NULL;
out:
    ledger_close(l);
    return rc;
}

int ledger_open(const char *folder, struct ledger **out, struct sh_err *err)
{
    struct sh_err why = {0};

    *out = NULL;
    if (mkdir(folder, 0750) < 0 && errno != EEXIST)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder %s", folder);
    if (ledger_adopt(folder, out, &why))
        sh_log_err(SH_LOG_ERROR, "usage.folder", &why);
    return *out ? SH_OK : make_ledger(folder, out, err);
}

void ledger_close(struct ledger *l)
{
    if (!l)
        return;
    if (l->head && l->path && l->n_high == 0)
        unlink(l->path);
    if (l->head)
        munmap(l->head, ledger_bytes());
    if (l->fd >= 0)
        close(l->fd);
    free(l->path);
    free(l);
}

/* ------------------------------------------------------------------ rows */

static bool is_row_of(const struct row *r, const struct msg_usage_row *a)
{
    return get_cell(&r->is) == ROW_OPEN && r->id == a->id && r->kind == a->kind &&
           strcmp(r->tenant, a->tenant) == 0;
}

static uint16_t *hint_of(struct ledger *l, const struct msg_usage_row *a)
{
    return &l->hints[(sh_crc32c((uint32_t)a->id, a->tenant, strlen(a->tenant)) + a->kind) %
                     N_HINTS];
}

/* The open row of this minute; else the newest of another one; NULL: none. */
static struct row *find_usage_row(struct ledger *l, int64_t minute, const struct msg_usage_row *a)
{
    struct row *best = &l->rows[*hint_of(l, a)];

    if (is_row_of(best, a) && best->minute == minute)
        return best;
    best = NULL;
    for (size_t i = 0; i < l->n_high; i++) {
        struct row *r = &l->rows[i];

        if (is_row_of(r, a) && (r->minute == minute || !best || r->minute > best->minute))
            best = r;
        if (best && best->minute == minute)
            break;
    }
    return best;
}

static struct row *take_free_row(struct ledger *l, int64_t minute, const struct msg_usage_row *a)
{
    for (size_t i = 0; i < LEDGER_ROWS; i++) {
        struct row *r = &l->rows[i];

        if (get_cell(&r->is) != ROW_FREE)
            continue;
        r->minute = minute;
        r->kind = a->kind;
        r->id = a->id;
        sh_strlcpy(r->tenant, a->tenant, sizeof(r->tenant));
        memset(r->sums, 0, sizeof(r->sums));
        set_cell(&r->which, 0);
        l->n_high = SH_MAX(l->n_high, i + 1);
        return r;
    }
    return NULL;
}

static void add_to_row(struct row *r, const struct msg_usage_row *a)
{
    uint64_t now = get_cell(&r->which);
    struct sums s = r->sums[now];

    s.gpu_ns += a->gpu_ns;
    s.requests += a->requests;
    s.samples = a->kind == MSG_USAGE_JOB ? a->samples : s.samples + a->samples;
    s.step = SH_MAX(s.step, a->step);
    r->sums[!now] = s;
    set_cell(&r->which, !now);
}

void ledger_count(struct ledger *l, int64_t minute, const struct msg_usage_row *a)
{
    struct row *r = find_usage_row(l, minute, a), *empty = NULL;

    if (!r || r->minute != minute)
        empty = take_free_row(l, minute, a);
    if (empty) {
        add_to_row(empty, a);
        set_cell(&empty->is, ROW_OPEN); /* only now: a kill leaves it whole or free */
        r = empty;
    } else if (r) {
        l->merged += r->minute != minute;
        add_to_row(r, a);
    } else {
        l->dropped++;
        return;
    }
    *hint_of(l, a) = (uint16_t)(r - l->rows);
}

/* ------------------------------------------------------------------ batches */

/* The lowest number that rows have; 0: none is on its way. */
static uint64_t on_its_way(const struct ledger *l)
{
    uint64_t number = 0;

    for (size_t i = 0; i < l->n_high; i++) {
        uint64_t is = get_cell(&l->rows[i].is);

        if (is >= ROW_FIRST_NUMBER && (!number || is < number))
            number = is;
    }
    return number;
}

static uint64_t close_batch(struct ledger *l)
{
    uint64_t number = get_cell(&l->head->next);
    size_t n = 0;

    for (size_t i = 0; i < l->n_high && n < LEDGER_BATCH; i++) {
        if (get_cell(&l->rows[i].is) != ROW_OPEN)
            continue;
        set_cell(&l->rows[i].is, number);
        n++;
    }
    return n ? number : 0;
}

uint64_t ledger_batch(struct ledger *l, int64_t now_s, struct msg_usage_row rows[LEDGER_BATCH],
                      size_t *n)
{
    uint64_t number = on_its_way(l);

    *n = 0;
    if (!number)
        number = close_batch(l);
    for (size_t i = 0; number && i < l->n_high && *n < LEDGER_BATCH; i++) {
        const struct row *r = &l->rows[i];
        const struct sums *s = &r->sums[get_cell(&r->which)];
        struct msg_usage_row *to = &rows[*n];

        if (get_cell(&r->is) != number)
            continue;
        *to = (struct msg_usage_row){.kind = r->kind,
                                     .id = r->id,
                                     .age_s = now_s - (r->minute * 60 + 30),
                                     .gpu_ns = s->gpu_ns,
                                     .requests = s->requests,
                                     .samples = s->samples,
                                     .step = s->step};
        memcpy(to->tenant, r->tenant, sizeof(to->tenant));
        (*n)++;
    }
    return number;
}

void ledger_stored(struct ledger *l, uint64_t number)
{
    size_t n_high = 0;

    if (number >= NUMBER_END)
        return; /* no number of ours */
    /* First the number: no other rows may get it. While rows have it adopt_ledger() sees that. */
    if (get_cell(&l->head->next) <= number)
        set_cell(&l->head->next, number + 1);
    for (size_t i = 0; i < l->n_high; i++) {
        uint64_t is = get_cell(&l->rows[i].is);

        if (is >= ROW_FIRST_NUMBER && is <= number)
            set_cell(&l->rows[i].is, ROW_FREE);
        else if (is != ROW_FREE)
            n_high = i + 1;
    }
    l->n_high = n_high;
}

const char *ledger_source(const struct ledger *l)
{
    return l->head->source;
}

struct ledger_state ledger_state(const struct ledger *l)
{
    struct ledger_state st = {.merged = l->merged, .dropped = l->dropped, .is_file = l->fd >= 0};

    for (size_t i = 0; i < l->n_high; i++) {
        const struct row *r = &l->rows[i];

        if (get_cell(&r->is) == ROW_FREE)
            continue;
        st.n_rows++;
        if (!st.oldest_minute || r->minute < st.oldest_minute)
            st.oldest_minute = r->minute;
    }
    return st;
}
