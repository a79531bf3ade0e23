/* catalog.h - models in memory: what /v2 needs to know without asking the database.
 *
 * A table is immutable and reference-counted; a refresh builds a new one and swaps it in. It does
 * so only when the database's mark (numbers and sums of row versions) has moved, so a refresh is
 * cheap enough to look up what the table lacks: a new model works at once. So that invented names
 * do not keep the database busy, each tenant has CAT_LOOKUPS_PER_S look-ups; beyond that the table,
 * which follows notifications and a poll (refresh.h), is believed.
 *
 * A tenant sees its own models and shared ones; its own hides a shared one of the same name.
 * Thread-safe.
 */
#ifndef SH_API_CACHE_CATALOG_H
#define SH_API_CACHE_CATALOG_H

#include "api/spec/alias.h"
#include "common/buckets.h"
#include "common/db.h"
#include "common/dim.h"
#include "common/dtype.h"
#include "common/json.h"

#define CAT_MAX_IO 64
#define CAT_OPEN (-2) /* an axis that is a symbol, or follows from the batch and symbols */
#define CAT_LOOKUPS_PER_S 20

struct cat_tensor {
    char name[128];
    enum sh_dtype dtype;
    size_t rank;
    int64_t dims[SH_MAX_RANK]; /* -1: the batch; CAT_OPEN: see axes */
    struct sh_dim axes[SH_MAX_RANK];
    bool is_mask; /* an input: its zeros are masked (runtime/model/pads.h) */
};

struct cat_version {
    int64_t id, model_id, version, max_batch;
    char tenant[64], model[132], precision[8], state[16];
    bool shared, ready, usable; /* usable: its tensors are known */
    bool is_coming;             /* will become ready without anybody's help */
    struct cat_tensor *inputs, *outputs;
    size_t n_inputs, n_outputs;
    struct sh_symbols symbols; /* sizes that a request brings, besides the batch */
    struct sh_buckets buckets; /* that they are padded to */
    bool batched;              /* axis 0 of every tensor is the batch */
    int64_t fixed_batch;       /* the only batch that it runs with; 0: any (common/sample.h) */
    bool has_slo;
    double slo_ms, slo_percentile;
    int64_t slo_priority;
    char on_miss[16], reason[256], reason_code[24];
};

struct cat_alias {
    int64_t id, model_id, generation, row_version;
    char name[SH_ALIAS_NAME];
    struct alias_targets now, before;
    bool is_sticky;
    bool is_counted; /* it may be rolled back by itself: alias_count.h */
};

struct catalog;
struct cat_table;

int catalog_new(int64_t max_age_ns, struct catalog **out,
                struct sh_err *err); /* OWNED, catalog_free() */
void catalog_free(struct catalog *c);
/* Does nothing within a transaction: what is not committed, nobody else may see. */
int catalog_refresh(struct catalog *c, struct db *db, struct sh_err *err);
/* Should the database be asked for what the table lacks? Uses up one of the tenant's look-ups.
 * False: it has none left, and the table was correct less than max_age_ns ago. */
bool catalog_should_ask(struct catalog *c, int64_t tenant_id, int64_t now_ns);
struct cat_table *catalog_get(struct catalog *c); /* takes a reference: catalog_put() */
void catalog_put(struct cat_table *t);            /* NULL is allowed */

/* version 0: the newest ready one, else the newest that is coming, else the newest. BORROWED from
 * the table; NULL: this tenant sees none. */
const struct cat_version *cat_find(const struct cat_table *t, const char *tenant, const char *model,
                                   int64_t version);
/* This version of owner's model; owner NULL: of the model that cat_find() finds. */
const struct cat_version *cat_exact(const struct cat_table *t, const char *tenant,
                                    const char *owner, const char *model, int64_t version);
/* An alias of the model that cat_find() finds. BORROWED from the table; NULL: it has none. */
const struct cat_alias *cat_alias(const struct cat_table *t, const char *tenant, const char *model,
                                  const char *name);
/* The version that serves a request with this key (alias_choose(); NULL: the one with the largest
 * weight), among those that are ready; while none is, among those before, unless somebody unloaded
 * one. If none of these is ready either, the one with the largest weight. BORROWED; NULL: its
 * versions are gone. */
const struct cat_version *cat_serving(const struct cat_table *t, const struct cat_alias *a,
                                      const char *model, const char *key);
bool cat_counts_aliases(const struct cat_table *t); /* is there one that is counted? */
/* Drops the metrics of models that are in `old` but not in `now`: those of their owners and, if no
 * other model has the name, of their other users. */
void cat_forget_gone(const struct cat_table *old, const struct cat_table *now);
size_t cat_count(const struct cat_table *t);
const struct cat_version *cat_at(const struct cat_table *t, size_t i); /* by model, then version */
bool cat_sees(const struct cat_version *v, const char *tenant);

/* Makes a table of these rows. TAKES rows (malloc) and what they own. */
int cat_table_new(struct cat_version *rows, size_t n, struct cat_table **out, struct sh_err *err);
/* Its aliases, in order of model and name. TAKES them (malloc). */
void cat_table_add_aliases(struct cat_table *t, struct cat_alias *aliases, size_t n);
/* Sets batched, fixed_batch and usable from the tensors. */
void cat_version_finish(struct cat_version *v);

#endif
