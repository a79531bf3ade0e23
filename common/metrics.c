/* metrics.c - the series of all metrics, and their text form.
 *
 * Each metric has a hash table of series. A series is published with one atomic store and never
 * moves, so finding and changing one needs no lock; the mutex is taken only for the first use of a
 * label set. sh_metric_drop() hides a series. Its memory waits for the same labels to come back or,
 * once there are MAX_STORED, is freed together with all other hidden ones. Readers of a chain are
 * counted: what was taken out of it is freed when there are none.
 *
 * A scrape reads while others write: each number is whole, but two numbers may be of different
 * moments. Only within a histogram must they agree, so its count is the sum of the buckets just
 * read.
 */
#include "common/metrics.h"

#include "common/mem.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define N_CHAINS 1024u
#define N_FOLDS 3 /* as it is, models together, tenants too */
#define MAX_STORED (4u * SH_METRIC_MAX_SERIES)
#define MAX_YIELDS 1000 /* while somebody is in a chain, which is some instructions, or a scrape */
#define MAX_BUCKETS 32
#define MAX_LABEL_BYTES 256 /* longer values are cut */
#define DEFAULT_BUCKETS "0.0005 0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1 2 5 10"

enum kind { COUNTER, GAUGE, HISTOGRAM };

static const struct row {
    enum kind kind;
    const char *name, *labels, *buckets, *procs, *help;
} ROWS[SH_N_METRICS] = {
#define SH_METRIC(kind, name, labels, buckets, procs, help) \
    {kind, #name, labels, buckets, procs, help},
#include "common/metrics.def"
#undef SH_METRIC
};

static const char *const KIND_NAME[] = {
    [COUNTER] = "counter", [GAUGE] = "gauge", [HISTOGRAM] = "histogram"};

struct series {
    struct series *_Atomic next;
    uint32_t hash;
    atomic_bool live;
    struct series *hidden_next; /* while it is out of its chain */
    _Atomic uint64_t value;     /* bits of a double: the value, or a histogram's sum */
    char *labels[SH_METRIC_MAX_LABELS];
    _Atomic uint64_t buckets[]; /* a histogram's: one per bound, then one for +Inf */
};

struct chain {
    struct series *_Atomic head;
    atomic_uint n_inside; /* threads that may hold a series of it */
};

struct table {
    struct chain chains[N_CHAINS];
    _Atomic uint32_t n_live;
    uint32_t n_stored; /* under the mutex, as are the two below until the first series is out */
    size_t n_bounds;
    double bounds[MAX_BUCKETS];
    bool has_bounds;
};

/* Protects growing of the tables. Nothing else is called while it is held but malloc. */
static pthread_mutex_t grow_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_process_ready;
static struct table tables[SH_N_METRICS];

/* ---------------------------------------------------------------- labels */

static size_t count_label_names(const char *labels)
{
    size_t n = labels[0] != '\0';

    for (; *labels; labels++)
        n += *labels == ',';
    return n;
}

static size_t label_len(const char *s)
{
    size_t n = strnlen(s, MAX_LABEL_BYTES);

    return n < MAX_LABEL_BYTES ? n : sh_utf8_cut(s, n);
}

static const char *label(const char *const *labels, size_t i)
{
    return labels && labels[i] ? labels[i] : "";
}

static uint32_t hash_labels(const char *const *labels, size_t n)
{
    uint32_t h = 2166136261u; /* FNV-1a */

    for (size_t i = 0; i < n; i++) {
        const char *s = label(labels, i);

        for (size_t k = 0, len = label_len(s); k < len; k++)
            h = (h ^ (unsigned char)s[k]) * 16777619u;
        h = (h ^ 0xFFu) * 16777619u; /* cannot occur in UTF-8: keeps "a","bc" from "ab","c" */
    }
    return h;
}

static bool same_labels(const struct series *s, const char *const *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = label_len(label(labels, i));

        if (strncmp(s->labels[i], label(labels, i), len) != 0 || s->labels[i][len] != '\0')
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------- series */

static struct chain *enter_chain(struct table *t, uint32_t hash)
{
    struct chain *c = &t->chains[hash % N_CHAINS];

    atomic_fetch_add(&c->n_inside, 1);
    return c;
}

static void leave_chain(struct chain *c)
{
    atomic_fetch_sub(&c->n_inside, 1);
}

/* Inside of c, or with the mutex. */
static struct series *look_in_chain(struct chain *c, uint32_t hash, const char *const *labels,
                                    size_t n)
{
    struct series *s = atomic_load(&c->head);

    while (s && (s->hash != hash || !same_labels(s, labels, n)))
        s = atomic_load(&s->next);
    return s;
}

static void free_series(struct series *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < SH_METRIC_MAX_LABELS; i++)
        free(s->labels[i]);
    free(s);
}

static void parse_bounds(struct table *t, const char *text)
{
    char *end = NULL;

    if (!text[0])
        text = DEFAULT_BUCKETS;
    for (t->n_bounds = 0; t->n_bounds < MAX_BUCKETS; t->n_bounds++) {
        double v = strtod(text, &end);

        if (end == text)
            break;
        t->bounds[t->n_bounds] = v;
        text = end;
    }
    t->has_bounds = true;
}

static struct series *make_series(enum sh_metric m, uint32_t hash, const char *const *labels,
                                  size_t n)
{
    struct table *t = &tables[m];
    size_t n_buckets = 0;
    struct series *s;

    if (ROWS[m].kind == HISTOGRAM) {
        if (!t->has_bounds)
            parse_bounds(t, ROWS[m].buckets);
        n_buckets = t->n_bounds + 1;
    }
    s = calloc(1, sizeof(*s) + n_buckets * sizeof(s->buckets[0]));
    if (!s)
        return NULL;
    s->hash = hash;
    for (size_t i = 0; i < n; i++) {
        s->labels[i] = strndup(label(labels, i), label_len(label(labels, i)));
        if (!s->labels[i]) {
            free_series(s);
            return NULL;
        }
    }
    return s;
}

static bool has_series_room(enum sh_metric m, uint32_t folds)
{
    const uint32_t most =
        ROWS[m].kind == HISTOGRAM ? SH_METRIC_MAX_HISTOGRAMS : SH_METRIC_MAX_SERIES;

    return atomic_load(&tables[m].n_live) < most + most * folds / 4;
}

/* Takes what is hidden out of a chain. A list of it; the last one's next is NULL. */
static struct series *take_hidden(struct chain *c)
{
    struct series *_Atomic *at = &c->head;
    struct series *list = NULL, *s;

    while ((s = atomic_load(at)) != NULL) {
        if (atomic_load(&s->live)) {
            at = &s->next;
            continue;
        }
        /* Who stands on it goes on in the chain: its own next stays until nobody is inside. */
        atomic_store(at, atomic_load(&s->next));
        s->hidden_next = list;
        list = s;
    }
    return list;
}

static bool is_deserted(struct chain *c)
{
    for (int i = 0; i < MAX_YIELDS; i++) {
        if (atomic_load(&c->n_inside) == 0)
            return true;
        sched_yield();
    }
    return false;
}

/* Memory of what is hidden. A chain that somebody does not leave keeps it. Under the mutex. */
static void free_hidden(struct table *t)
{
    for (size_t i = 0; i < N_CHAINS; i++) {
        struct chain *c = &t->chains[i];
        struct series *list = take_hidden(c), *next;
        bool deserted = list && is_deserted(c);

        for (; list; list = next) {
            next = list->hidden_next;
            if (deserted) {
                free_series(list);
                t->n_stored--;
            } else {
                atomic_store(&list->next, atomic_load(&c->head));
                atomic_store(&c->head, list);
            }
        }
    }
}

static void revive(struct table *t, struct series *s, bool has_buckets)
{
    atomic_store(&s->value, 0);
    for (size_t i = 0; has_buckets && i <= t->n_bounds; i++)
        atomic_store(&s->buckets[i], 0);
    atomic_store(&s->live, true);
    atomic_fetch_add(&t->n_live, 1);
}

/* Makes the series, or shows it again. False: the table is full, or memory is out. */
static bool grow_series(enum sh_metric m, uint32_t folds, uint32_t hash, const char *const *labels,
                        size_t n)
{
    struct table *t = &tables[m];
    struct chain *c = &t->chains[hash % N_CHAINS];
    struct series *s;
    bool done = false;

    if (!has_series_room(m, folds)) /* as for every use of a set that came too late */
        return false;
    pthread_mutex_lock(&grow_lock);
    if (t->n_stored >= MAX_STORED)
        free_hidden(t);
    s = look_in_chain(c, hash, labels, n); /* another thread may have been faster */
    if (s && atomic_load(&s->live)) {
        done = true;
    } else if (s) {
        done = has_series_room(m, folds);
        if (done)
            revive(t, s, ROWS[m].kind == HISTOGRAM);
    } else if (has_series_room(m, folds) && t->n_stored < MAX_STORED) {
        s = make_series(m, hash, labels, n);
        done = s != NULL;
        if (s) {
            atomic_store(&s->next, atomic_load(&c->head));
            atomic_store(&s->live, true);
            atomic_fetch_add(&t->n_live, 1);
            t->n_stored++;
            atomic_store(&c->head, s);
        }
    }
    pthread_mutex_unlock(&grow_lock);
    return done;
}

static struct series *get_as(enum sh_metric m, uint32_t folds, const char *const *labels, size_t n,
                             struct chain **in)
{
    const uint32_t hash = hash_labels(labels, n);

    for (int tries = 0; tries < 2; tries++) {
        struct series *s;

        *in = enter_chain(&tables[m], hash);
        s = look_in_chain(*in, hash, labels, n);
        if (s && atomic_load_explicit(&s->live, memory_order_relaxed))
            return s;
        leave_chain(*in);
        if (!grow_series(m, folds, hash, labels, n))
            break;
    }
    return NULL;
}

/* Place of a label in a list of them; -1: it is not there. */
static int label_place(const char *labels, const char *name)
{
    size_t len = strlen(name);

    for (int i = 0; *labels; i++) {
        size_t n = strcspn(labels, ",");

        if (n == len && memcmp(labels, name, n) == 0)
            return i;
        labels += n + (labels[n] == ',');
    }
    return -1;
}

/* False: the metric does not have this label. */
static bool fold_labels(enum sh_metric m, uint32_t folds, const char *labels[SH_METRIC_MAX_LABELS])
{
    const int at = label_place(ROWS[m].labels, folds == 1 ? "model" : "tenant");

    if (at >= 0)
        labels[at] = SH_METRIC_OTHER;
    return at >= 0;
}

/* *in: leave_chain() it afterwards, unless NULL is returned. */
static struct series *get_series(enum sh_metric m, enum kind kind, const char *const *labels,
                                 struct chain **in)
{
    const char *folded[SH_METRIC_MAX_LABELS];
    enum sh_metric why = M_shunt_metric_series_folded_total;
    struct series *s;
    size_t n;

    if ((unsigned)m >= SH_N_METRICS || ROWS[m].kind != kind)
        return NULL;
    n = count_label_names(ROWS[m].labels);
    s = get_as(m, 0, labels, n, in);
    if (s)
        return s;
    for (size_t i = 0; i < n; i++)
        folded[i] = label(labels, i);
    for (uint32_t folds = 1; folds < N_FOLDS && !s && kind != GAUGE; folds++)
        if (fold_labels(m, folds, folded))
            s = get_as(m, folds, folded, n, in);
    if (!s)
        why = M_shunt_metric_series_dropped_total;
    if (m != M_shunt_metric_series_dropped_total && m != M_shunt_metric_series_folded_total)
        sh_metric_add(why, SH_LABELS(ROWS[m].name), 1);
    return s;
}

static double to_double(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

static uint64_t to_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static void add_double(_Atomic uint64_t *to, double v)
{
    uint64_t old = atomic_load_explicit(to, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(to, &old, to_bits(to_double(old) + v),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void sh_metric_add(enum sh_metric m, const char *const *labels, double v)
{
    struct chain *in;
    struct series *s;

    if (!(v >= 0) || isinf(v)) /* a counter never falls; NaN would stay for ever */
        return;
    s = get_series(m, COUNTER, labels, &in);
    if (!s)
        return;
    add_double(&s->value, v);
    leave_chain(in);
}

void sh_metric_set(enum sh_metric m, const char *const *labels, double v)
{
    struct chain *in;
    struct series *s = get_series(m, GAUGE, labels, &in);

    if (!s)
        return;
    atomic_store_explicit(&s->value, to_bits(v), memory_order_relaxed);
    leave_chain(in);
}

void sh_metric_observe(enum sh_metric m, const char *const *labels, double v)
{
    const struct table *t;
    struct chain *in;
    struct series *s;
    size_t i = 0;

    if (!isfinite(v))
        return;
    s = get_series(m, HISTOGRAM, labels, &in);
    if (!s)
        return;
    t = &tables[m];
    while (i < t->n_bounds && v > t->bounds[i])
        i++;
    atomic_fetch_add_explicit(&s->buckets[i], 1, memory_order_relaxed);
    add_double(&s->value, v);
    leave_chain(in);
}

static void hide(struct table *t, struct series *s)
{
    if (atomic_exchange(&s->live, false))
        atomic_fetch_sub(&t->n_live, 1);
}

void sh_metric_drop(enum sh_metric m, const char *const *labels)
{
    struct chain *in;
    struct series *s;
    uint32_t hash;
    size_t n;

    if ((unsigned)m >= SH_N_METRICS)
        return;
    n = count_label_names(ROWS[m].labels);
    hash = hash_labels(labels, n);
    in = enter_chain(&tables[m], hash);
    s = look_in_chain(in, hash, labels, n);
    if (s)
        hide(&tables[m], s);
    leave_chain(in);
}

/* value NULL: any. */
static bool has_label(const struct series *s, int place, const char *value)
{
    size_t len = value ? label_len(value) : 0;

    return !value || (strncmp(s->labels[place], value, len) == 0 && s->labels[place][len] == '\0');
}

void sh_metrics_forget(const char *tenant, const char *model)
{
    for (size_t m = 0; m < SH_N_METRICS; m++) {
        int t = label_place(ROWS[m].labels, "tenant"), x = label_place(ROWS[m].labels, "model");
        bool has_both = (!tenant || t >= 0) && (!model || x >= 0) && (t >= 0 || x >= 0);

        for (uint32_t i = 0; has_both && i < N_CHAINS; i++) {
            struct chain *in = enter_chain(&tables[m], i);

            for (struct series *s = atomic_load(&in->head); s; s = atomic_load(&s->next))
                if (has_label(s, t, tenant) && has_label(s, x, model))
                    hide(&tables[m], s);
            leave_chain(in);
        }
    }
}

void sh_metrics_reset(void)
{
    for (size_t m = 0; m < SH_N_METRICS; m++) {
        for (size_t c = 0; c < N_CHAINS; c++) {
            struct series *s = atomic_exchange(&tables[m].chains[c].head, NULL);

            while (s) {
                struct series *next = atomic_load(&s->next);

                free_series(s);
                s = next;
            }
        }
        atomic_store(&tables[m].n_live, 0);
        tables[m].n_stored = 0;
    }
}

/* ---------------------------------------------------------------- text */

static void format_double(double v, char out[static 32])
{
    if (isnan(v))
        sh_strlcpy(out, "NaN", 32);
    else if (isinf(v))
        sh_strlcpy(out, v > 0 ? "+Inf" : "-Inf", 32);
    else if (v == floor(v) && fabs(v) < 1e15)
        snprintf(out, 32, "%.0f", v);
    else
        snprintf(out, 32, "%.15g", v);
    if (isfinite(v) && strtod(out, NULL) != v) /* 15 digits are easier to read, 17 always enough */
        snprintf(out, 32, "%.17g", v);
}

static int put_label_value(struct sh_buf *out, const char *s, struct sh_err *err)
{
    int rc = SH_OK;

    for (; *s && !rc; s++) {
        if (*s == '\\' || *s == '"')
            rc = sh_buf_append(out, "\\", 1, err);
        if (!rc)
            rc = *s == '\n' ? sh_buf_puts(out, "\\n", err) : sh_buf_append(out, s, 1, err);
    }
    return rc;
}

/* One line of the text. */
struct sample {
    const struct row *row;
    const struct series *s;
    const char *suffix, *value;
    const char *le; /* a bucket's upper bound, else NULL */
};

static int put_sample_labels(struct sh_buf *out, const struct sample *x, struct sh_err *err)
{
    const char *name = x->row->labels, *sep = "{";
    int rc = SH_OK;

    for (size_t i = 0; *name && !rc; i++) {
        size_t n = strcspn(name, ",");

        rc = sh_buf_printf(out, err, "%s%.*s=\"", sep, (int)n, name);
        if (!rc)
            rc = put_label_value(out, x->s->labels[i], err);
        if (!rc)
            rc = sh_buf_puts(out, "\"", err);
        name += n + (name[n] == ',');
        sep = ",";
    }
    if (!rc && x->le) {
        rc = sh_buf_printf(out, err, "%sle=\"%s\"", sep, x->le);
        sep = ",";
    }
    if (!rc && sep[0] == ',')
        rc = sh_buf_puts(out, "}", err);
    return rc;
}

static int put_sample(struct sh_buf *out, const struct sample *x, struct sh_err *err)
{
    int rc = sh_buf_printf(out, err, "%s%s", x->row->name, x->suffix);

    if (!rc)
        rc = put_sample_labels(out, x, err);
    if (!rc)
        rc = sh_buf_printf(out, err, " %s\n", x->value);
    return rc;
}

static int put_histogram(struct sh_buf *out, const struct table *t, struct sample x,
                         struct sh_err *err)
{
    char le[32], value[32];
    uint64_t count = 0;
    int rc = SH_OK;

    x.value = value;
    for (size_t i = 0; i <= t->n_bounds && !rc; i++) {
        count += atomic_load_explicit(&x.s->buckets[i], memory_order_relaxed);
        if (i < t->n_bounds)
            snprintf(le, sizeof(le), "%g", t->bounds[i]);
        else
            sh_strlcpy(le, "+Inf", sizeof(le));
        snprintf(value, sizeof(value), "%llu", (unsigned long long)count);
        x.suffix = "_bucket";
        x.le = le;
        rc = put_sample(out, &x, err);
    }
    x.le = NULL;
    if (!rc) {
        x.suffix = "_count";
        rc = put_sample(out, &x, err);
    }
    if (!rc) {
        x.suffix = "_sum";
        format_double(to_double(atomic_load_explicit(&x.s->value, memory_order_relaxed)), value);
        rc = put_sample(out, &x, err);
    }
    return rc;
}

static int put_series(struct sh_buf *out, const struct table *t, const struct row *row,
                      const struct series *s, struct sh_err *err)
{
    struct sample x = {.row = row, .s = s, .suffix = ""};
    char value[32];

    if (row->kind == HISTOGRAM)
        return put_histogram(out, t, x, err);
    format_double(to_double(atomic_load_explicit(&s->value, memory_order_relaxed)), value);
    x.value = value;
    return put_sample(out, &x, err);
}

static int put_chain(struct sh_buf *out, size_t m, uint32_t c, bool *has_header, struct sh_err *err)
{
    const struct row *row = &ROWS[m];
    struct table *t = &tables[m];
    struct chain *in = enter_chain(t, c);
    int rc = SH_OK;

    for (const struct series *s = atomic_load(&in->head); s && !rc; s = atomic_load(&s->next)) {
        if (!atomic_load_explicit(&s->live, memory_order_relaxed))
            continue;
        if (!*has_header)
            rc = sh_buf_printf(out, err, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help,
                               row->name, KIND_NAME[row->kind]);
        *has_header = true;
        if (!rc)
            rc = put_series(out, t, row, s, err);
    }
    leave_chain(in);
    return rc;
}

static int put_metric(struct sh_buf *out, size_t m, struct sh_err *err)
{
    bool has_header = false;
    int rc = SH_OK;

    for (uint32_t c = 0; c < N_CHAINS && !rc; c++)
        rc = put_chain(out, m, c, &has_header, err);
    return rc;
}

int sh_metrics_render(char proc, struct sh_buf *out, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t m = 0; m < SH_N_METRICS && !rc; m++)
        if (strchr(ROWS[m].procs, proc))
            rc = put_metric(out, m, err);
    return rc;
}

static void put_procs(const char *procs, struct sh_buf *out)
{
    const char *sep = "";

    for (; *procs; procs++) {
        sh_buf_printf(out, NULL, "%s%s", sep,
                      *procs == 'a'   ? "api"
                      : *procs == 's' ? "scheduler"
                                      : "executor");
        sep = ", ";
    }
}

void sh_metrics_print_docs(struct sh_buf *out)
{
    sh_buf_puts(out, "| metric | type | labels | processes | meaning |\n", NULL);
    sh_buf_puts(out, "| --- | --- | --- | --- | --- |\n", NULL);
    for (size_t m = 0; m < SH_N_METRICS; m++) {
        const struct row *row = &ROWS[m];

        sh_buf_printf(out, NULL, "| `%s` | %s | %s | ", row->name, KIND_NAME[row->kind],
                      row->labels);
        put_procs(row->procs, out);
        sh_buf_printf(out, NULL, " | %s |\n", row->help);
    }
}

void sh_metrics_set_ready(bool is_ready)
{
    atomic_store(&is_process_ready, is_ready);
}

bool sh_metrics_is_ready(void)
{
    return atomic_load(&is_process_ready);
}
