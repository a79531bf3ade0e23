/* lines.c - see lines.h. */
#include "scheduler/decide/lines.h"

#include "common/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEVEL 7u
#define FACTOR 4    /* of device time, from one level to the next */
#define PATIENCE 64 /* handicap by device time */

void lines_fini(struct lines *ls)
{
    for (size_t i = 0; i < ls->n; i++)
        free(ls->items[i]);
    free(ls->items);
    *ls = (struct lines){.most = ls->most};
}

static int compare_ns(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

int line_key_cmp(const struct line_key *a, const struct line_key *b)
{
    int d = compare_ns(a->tenant_id, b->tenant_id);

    if (!d)
        d = compare_ns(a->queue_id, b->queue_id);
    if (!d)
        d = compare_ns(a->version_id, b->version_id);
    if (!d)
        d = compare_ns(a->is_batch, b->is_batch);
    if (!d)
        d = compare_ns(a->preemptible, b->preemptible);
    if (!d)
        d = compare_ns(a->gpus, b->gpus);
    return d ? d : compare_ns(a->array_id, b->array_id);
}

int line_place_cmp(const struct line_place *a, const struct line_place *b)
{
    int d = compare_ns(b->priority, a->priority);

    if (!d)
        d = compare_ns(a->line_us, b->line_us);
    return d ? d : compare_ns(a->id, b->id);
}

/* Index of the first line whose key is not less. */
static size_t line_lower_bound(const struct lines *ls, const struct line_key *key)
{
    size_t lo = 0, hi = ls->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (line_key_cmp(&ls->items[mid]->key, key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct line *lines_find(const struct lines *ls, const struct line_key *key)
{
    size_t i = line_lower_bound(ls, key);

    return i < ls->n && line_key_cmp(&ls->items[i]->key, key) == 0 ? ls->items[i] : NULL;
}

int lines_get(struct lines *ls, const struct line_key *key, struct line **out, struct sh_err *err)
{
    size_t i = line_lower_bound(ls, key);
    struct line *l;
    int rc;

    *out = NULL;
    if (i < ls->n && line_key_cmp(&ls->items[i]->key, key) == 0) {
        *out = ls->items[i];
        return SH_OK;
    }
    rc = sh_grow(&ls->items, &ls->cap, ls->n + 1, sizeof(ls->items[0]), ls->most,
                 "lines of jobs (--max-lines)", err);
    if (rc)
        return rc;
    l = calloc(1, sizeof(*l));
    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a line of jobs");
    l->key = *key;
    l->cut = ls->crowded;
    l->edge = (struct line_place){.priority = INT32_MAX};
    memmove(&ls->items[i + 1], &ls->items[i], (ls->n - i) * sizeof(ls->items[0]));
    ls->items[i] = l;
    ls->n++;
    *out = l;
    return SH_OK;
}

bool line_covers(const struct line *l, const struct line_place *p)
{
    return !l->cut || line_place_cmp(p, &l->edge) <= 0;
}

void line_read_to(struct line *l, const struct line_place *last, bool more)
{
    if (last)
        l->edge = *last;
    l->cut = more;
}

static int by_line_place(const void *a, const void *b)
{
    return line_place_cmp(a, b);
}

void line_shrink(struct line *l, struct line_place *places, size_t n, size_t keep)
{
    qsort(places, n, sizeof(*places), by_line_place);
    if (n <= keep)
        return;
    l->edge = places[keep - 1];
    l->cut = true;
}

uint32_t lines_level(int64_t ns, int64_t first_ns)
{
    uint32_t level = 0;

    for (; first_ns > 0 && ns >= first_ns && level < MAX_LEVEL; ns /= FACTOR)
        level++;
    return level;
}

int64_t lines_level_from_ns(uint32_t level, int64_t first_ns)
{
    int64_t ns = level ? first_ns : 0;

    for (uint32_t i = 1; i < level; i++)
        ns *= FACTOR;
    return level <= MAX_LEVEL ? ns : INT64_MAX;
}

int64_t lines_handicap_us(int64_t takes_ns, int64_t first_ns)
{
    if (lines_level(takes_ns, first_ns) == 0)
        return 0;
    return SH_MIN(takes_ns, lines_level_from_ns(MAX_LEVEL, first_ns)) / 1000 * PATIENCE;
}

size_t lines_window(size_t n_lines, size_t most)
{
    size_t w = n_lines ? most / n_lines : LINES_MAX_WINDOW;

    return SH_MAX(SH_MIN(w, (size_t)LINES_MAX_WINDOW), (size_t)LINES_MIN_WINDOW);
}

bool lines_is_low(const struct lines *ls, const struct line *l)
{
    return l->cut && 2 * l->n <= lines_window(ls->n, ls->most);
}

bool lines_is_over(const struct lines *ls, const struct line *l)
{
    return l->n > 2 * lines_window(ls->n, ls->most);
}

void lines_drop_empty(struct lines *ls)
{
    size_t n = 0;

    for (size_t i = 0; i < ls->n; i++) {
        if (ls->items[i]->n || ls->items[i]->cut)
            ls->items[n++] = ls->items[i];
        else
            free(ls->items[i]);
    }
    ls->n = n;
}
