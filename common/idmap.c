/* idmap.c - see idmap.h: linear probing; a removal moves later entries back. */
#include "common/idmap.h"

#include <stdlib.h>

#define IDMAP_FIRST 16u
#define IDMAP_MAX (1u << 24)

static size_t home(uint64_t key, size_t cap)
{
    key ^= key >> 31;
    key *= 0x9e3779b97f4a7c15u;
    key ^= key >> 29;
    return (size_t)key & (cap - 1);
}

static struct idmap_slot *find_id_slot(const struct idmap *m, uint64_t key)
{
    size_t i;

    if (m->cap == 0)
        return NULL;
    for (i = home(key, m->cap); m->slots[i].value; i = (i + 1) & (m->cap - 1)) {
        if (m->slots[i].key == key)
            return &m->slots[i];
    }
    return NULL;
}

static void place_entry(struct idmap_slot *slots, size_t cap, uint64_t key, void *value)
{
    size_t i = home(key, cap);

    while (slots[i].value)
        i = (i + 1) & (cap - 1);
    slots[i] = (struct idmap_slot){.key = key, .value = value};
}

static int grow_map(struct idmap *m, struct sh_err *err)
{
    size_t cap = m->cap ? m->cap * 2 : IDMAP_FIRST;
    struct idmap_slot *slots;

    if (cap > IDMAP_MAX)
        return SH_FAIL(err, SH_E_TOOBIG, "too many entries in a table of the scheduler");
    slots = calloc(cap, sizeof(*slots));
    if (!slots)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a table of %zu entries", cap);
    for (size_t i = 0; i < m->cap; i++) {
        if (m->slots[i].value)
            place_entry(slots, cap, m->slots[i].key, m->slots[i].value);
    }
    free(m->slots);
    m->slots = slots;
    m->cap = cap;
    return SH_OK;
}

void idmap_fini(struct idmap *m)
{
    free(m->slots);
    *m = (struct idmap){0};
}

void *idmap_get(const struct idmap *m, uint64_t key)
{
    struct idmap_slot *s = find_id_slot(m, key);

    return s ? s->value : NULL;
}

int idmap_put(struct idmap *m, uint64_t key, void *value, struct sh_err *err)
{
    struct idmap_slot *s = find_id_slot(m, key);
    int rc = SH_OK;

    if (s) {
        s->value = value;
        return SH_OK;
    }
    if (m->n + 1 > m->cap / 4 * 3)
        rc = grow_map(m, err);
    if (rc)
        return rc;
    place_entry(m->slots, m->cap, key, value);
    m->n++;
    return SH_OK;
}

void *idmap_del(struct idmap *m, uint64_t key)
{
    struct idmap_slot *s = find_id_slot(m, key);
    void *value;
    size_t hole, i;

    if (!s)
        return NULL;
    value = s->value;
    hole = (size_t)(s - m->slots);
    m->n--;
    /* Closes the hole, so that a search may stop at the first free slot. */
    for (i = (hole + 1) & (m->cap - 1); m->slots[i].value; i = (i + 1) & (m->cap - 1)) {
        size_t want = home(m->slots[i].key, m->cap);

        if (((i - want) & (m->cap - 1)) < ((i - hole) & (m->cap - 1)))
            continue;
        m->slots[hole] = m->slots[i];
        hole = i;
    }
    m->slots[hole] = (struct idmap_slot){0};
    return value;
}
