/* alias.h - an alias of a model, a name that stands for versions of it, each with a weight: which
 * of them a request gets, and when it is rolled back by itself. Pure.
 */
#ifndef SH_API_SPEC_ALIAS_H
#define SH_API_SPEC_ALIAS_H

#include "common/alias.h"
#include "common/json.h"

#include <stdint.h>

#define ALIAS_TARGETS 8
#define ALIAS_WEIGHT 1000     /* the largest */
#define ALIAS_STABLE "stable" /* serves the requests that name no version, if it is there */

struct alias_target {
    int64_t version, weight; /* weight: 1 to ALIAS_WEIGHT */
};

struct alias_targets {
    struct alias_target list[ALIAS_TARGETS]; /* by version, each once */
    size_t n;                                /* 0: none */
};

/* [{"version","weight"}], weight 1 if absent. All faults go to err->faults. */
int alias_read_targets(const json_t *list, struct alias_targets *out, struct sh_err *err);
/* OWNED; NULL: no memory. */
json_t *alias_targets_json(const struct alias_targets *t);
bool alias_has(const struct alias_targets *t, int64_t version);

/* Which one has this key? Keys are shared out by weight, and the same key has the same one: when a
 * target goes away, comes back or gets another weight, only keys move that it had or gets. key: any
 * text; salt: two aliases choose independently. n > 0. */
const struct alias_target *alias_choose(const struct alias_target *t, size_t n, int64_t salt,
                                        const char *key);

/* When an alias is rolled back by itself. */
struct alias_policy {
    int64_t window_s, min_requests;
    double
        error_percent; /* more failures than before, in percent of the requests; 0: not looked at */
    double burn_rate;  /* how many times faster than allowed the error budget goes; 0: likewise */
};
#define ALIAS_POLICY                                                             \
    {                                                                            \
        .window_s = 300, .min_requests = 50, .error_percent = 5, .burn_rate = 10 \
    }
#define ALIAS_WINDOW_MIN_S 10
#define ALIAS_WINDOW_MAX_S 86400
/* As body or row; all fields optional, defaults: ALIAS_POLICY. */
int alias_read_policy(const json_t *obj, struct alias_policy *out, struct sh_err *err);
json_t *alias_policy_json(const struct alias_policy *p); /* OWNED; NULL: no memory */

/* Requests of one version within the window. failed: by the server's fault; met, missed: of those
 * of a model with a latency target, refusals among the missed. */
struct alias_count {
    int64_t version;
    int64_t answered, failed, met, missed;
};

struct alias_case {
    struct alias_policy policy;
    double percentile; /* of the latency target; 0: there is none */
    struct alias_targets now, before;
    struct alias_count counts[2 * ALIAS_TARGETS]; /* of versions of both; absent: no requests */
    size_t n_counts;
};

/* Is the version's part of all weights larger than before? */
bool alias_has_grown(const struct alias_case *c, int64_t version);

enum alias_verdict { ALIAS_KEEP, ALIAS_ERRORS, ALIAS_BUDGET };
const char *alias_verdict_code(enum alias_verdict v); /* "Errors", "ErrorBudget"; "" for KEEP */

/* Is one of the versions whose share grew (from `before` to `now`) worse than those whose share did
 * not? Nobody to compare with: than none. Versions with fewer than min_requests are not looked at.
 * *left: what was before, without all such versions; it is not empty. why: a sentence about the
 * first of them, for people; "" for ALIAS_KEEP. */
enum alias_verdict alias_judge(const struct alias_case *c, struct alias_targets *left,
                               char why[static 256]);

#endif
