/* alias.c - see alias.h. */
#include "api/spec/alias.h"

#include "common/hash.h"
#include "common/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- targets */

static int by_version(const void *a, const void *b)
{
    const struct alias_target *x = a, *y = b;

    return x->version < y->version ? -1 : x->version > y->version;
}

static int read_one_target(const json_t *one, struct alias_target *t, struct sh_err *err)
{
    struct sh_json_field f[] = {
        {"version", SH_JSON_INT, &t->version, .required = true, .min = 1, .max = INT32_MAX},
        {"weight", SH_JSON_INT, &t->weight, .min = 1, .max = ALIAS_WEIGHT},
    };

    *t = (struct alias_target){.weight = 1};
    return sh_json_read(one, "targets[]", f, SH_ARRAY_LEN(f), err);
}

int alias_read_targets(const json_t *list, struct alias_targets *out, struct sh_err *err)
{
    size_t i, n = json_array_size(list);
    const json_t *one;
    int rc = SH_OK;

    *out = (struct alias_targets){0};
    if (n < 1 || n > ALIAS_TARGETS)
        return sh_json_fail(err, "targets", "\"targets\" must name 1 to %d versions",
                            ALIAS_TARGETS);
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        rc = sh_rc_first(rc, read_one_target(one, &out->list[i], err));
    }
    out->n = n;
    qsort(out->list, n, sizeof(out->list[0]), by_version);
    for (i = 1; !rc && i < n; i++)
        if (out->list[i].version == out->list[i - 1].version)
            rc = sh_json_fail(err, "targets", "\"targets\" names version %" PRId64 " twice",
                              out->list[i].version);
    return rc;
}

json_t *alias_targets_json(const struct alias_targets *t)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < t->n; i++)
        if (json_array_append_new(list,
                                  json_pack("{s:I, s:I}", "version", (json_int_t)t->list[i].version,
                                            "weight", (json_int_t)t->list[i].weight))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static int64_t alias_weight(const struct alias_targets *t, int64_t version)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].version == version)
            return t->list[i].weight;
    return 0;
}

bool alias_has(const struct alias_targets *t, int64_t version)
{
    return alias_weight(t, version) > 0;
}

/* Every bit of the result depends on every bit of x (splitmix64): names of clients are alike. */
static uint64_t stir_bits(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Each target draws a time until its turn, with its weight as the rate; the first one is chosen
 * (rendezvous hashing). The draw is its own, whoever else is there: when one goes away or gets
 * less, only its keys move. */
const struct alias_target *alias_choose(const struct alias_target *t, size_t n, int64_t salt,
                                        const char *key)
{
    const uint64_t of_key = n > 1 ? stir_bits(sh_hash_name(key) ^ stir_bits((uint64_t)salt)) : 0;
    const struct alias_target *first = t;
    double least = INFINITY;

    for (size_t i = 0; n > 1 && i < n; i++) {
        uint64_t bits = stir_bits(of_key ^ stir_bits((uint64_t)t[i].version));
        double turn = -log(((double)(bits >> 12) + 0.5) * 0x1p-52) / (double)t[i].weight;

        if (turn < least) {
            least = turn;
            first = &t[i];
        }
    }
    return first;
}

/* ---------------------------------------------------------------- rollback by itself */

int alias_read_policy(const json_t *obj, struct alias_policy *out, struct sh_err *err)
{
    struct sh_json_field f[] = {
        {"window_s", SH_JSON_INT, &out->window_s, .min = ALIAS_WINDOW_MIN_S,
         .max = ALIAS_WINDOW_MAX_S},
        {"min_requests", SH_JSON_INT, &out->min_requests, .min = 1, .max = 1e6},
        {"error_percent", SH_JSON_F64, &out->error_percent, .min = 0, .max = 100},
        {"burn_rate", SH_JSON_F64, &out->burn_rate, .min = 0, .max = 1e5},
    };

    *out = (struct alias_policy)ALIAS_POLICY;
    return sh_json_read(obj, "rollback", f, SH_ARRAY_LEN(f), err);
}

json_t *alias_policy_json(const struct alias_policy *p)
{
    return json_pack("{s:I, s:I, s:o, s:o}", "window_s", (json_int_t)p->window_s, "min_requests",
                     (json_int_t)p->min_requests, "error_percent", sh_json_number(p->error_percent),
                     "burn_rate", sh_json_number(p->burn_rate));
}

const char *alias_verdict_code(enum alias_verdict v)
{
    static const char *const CODES[] = {"", "Errors", "ErrorBudget"};

    return CODES[v];
}

bool alias_has_grown(const struct alias_case *c, int64_t version)
{
    int64_t sum[2] = {0, 0};

    for (size_t i = 0; i < c->now.n; i++)
        sum[0] += c->now.list[i].weight;
    for (size_t i = 0; i < c->before.n; i++)
        sum[1] += c->before.list[i].weight;
    return alias_weight(&c->now, version) * sum[1] > alias_weight(&c->before, version) * sum[0];
}

static double alias_part(int64_t some, int64_t others)
{
    return some + others > 0 ? (double)some / (double)(some + others) : 0;
}

static bool has_enough(const struct alias_case *c, int64_t n)
{
    return n >= c->policy.min_requests;
}

static enum alias_verdict judge_one(const struct alias_case *c, const struct alias_count *x,
                                    const struct alias_count *base, char why[static 256])
{
    const struct alias_policy *p = &c->policy;
    double failed = 100 * alias_part(x->failed, x->answered), before = 0, burn, allowed;

    if (has_enough(c, base->failed + base->answered))
        before = 100 * alias_part(base->failed, base->answered);
    if (p->error_percent > 0 && has_enough(c, x->failed + x->answered) &&
        failed > before + p->error_percent) {
        snprintf(why, 256,
                 "version %" PRId64 " failed %.1f %% of %" PRId64 " requests, the versions before "
                 "it %.1f %%; at most %g %% more are allowed",
                 x->version, failed, x->failed + x->answered, before, p->error_percent);
        return ALIAS_ERRORS;
    }
    if (p->burn_rate <= 0 || c->percentile <= 0 || !has_enough(c, x->met + x->missed))
        return ALIAS_KEEP;
    allowed = 1 - c->percentile / 100;
    burn = alias_part(x->missed, x->met) / allowed;
    before =
        has_enough(c, base->met + base->missed) ? alias_part(base->missed, base->met) / allowed : 0;
    if (burn <= before + p->burn_rate)
        return ALIAS_KEEP;
    snprintf(why, 256,
             "version %" PRId64 " missed the latency target in %" PRId64 " of %" PRId64
             " requests, %.1f times what its percentile allows, the versions before it %.1f times; "
             "at most %g times more are allowed",
             x->version, x->missed, x->met + x->missed, burn, before, p->burn_rate);
    return ALIAS_BUDGET;
}

static void drop_target(struct alias_targets *t, int64_t version)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].version != version)
            t->list[n++] = t->list[i];
    t->n = n;
}

/* Not all of `before` can have grown, so that something is left. */
enum alias_verdict alias_judge(const struct alias_case *c, struct alias_targets *left,
                               char why[static 256])
{
    struct alias_count base = {0};
    enum alias_verdict first = ALIAS_KEEP;
    char others[256];

    why[0] = '\0';
    *left = c->before;
    for (size_t i = 0; i < c->n_counts; i++) {
        const struct alias_count *x = &c->counts[i];

        if (alias_has_grown(c, x->version))
            continue;
        base.answered += x->answered;
        base.failed += x->failed;
        base.met += x->met;
        base.missed += x->missed;
    }
    for (size_t i = 0; c->before.n > 0 && i < c->n_counts; i++) {
        const struct alias_count *x = &c->counts[i];
        enum alias_verdict v;

        if (!alias_has_grown(c, x->version))
            continue;
        v = judge_one(c, x, &base, first ? others : why);
        if (v != ALIAS_KEEP)
            drop_target(left, x->version);
        first = first ? first : v;
    }
    return first;
}
