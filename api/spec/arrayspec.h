/* arrayspec.h - the indices of an array of jobs, and the job that each of them stands for. Pure. */
#ifndef SH_API_SPEC_ARRAYSPEC_H
#define SH_API_SPEC_ARRAYSPEC_H

#include "common/json.h"

#define ARRAYSPEC_MAX_INDEX 1000000

/* "0-99", "0-98:2", "1,5,7-9": in any order, none twice, at most max. out: room for max. Fails:
 * SH_E_INVALID, SH_E_TOOBIG. */
int arrayspec_indices(const char *text, int64_t *out, size_t max, size_t *n, struct sh_err *err);
/* The jobs of an array: each combination of a grid with each index. Without a grid there is one
 * combination, without indices one index, 0. In an array with a grid, jobs are numbered combination
 * * stride + index. */
struct arrayspec {
    const json_t *grid; /* BORROWED; NULL: none */
    int64_t *indices;   /* BORROWED */
    size_t n_indices, n_combinations;
};
int64_t arrayspec_number(const struct arrayspec *a, size_t place);
/* The job at a place, from 0 to n_indices * n_combinations, made as by gridspec_apply(). "{index}"
 * in its name and label values becomes its number, and the seed of training is the template's plus
 * the index, so that all combinations are tried with the same seeds. *out: OWNED. Fails:
 * SH_E_NOMEM, SH_E_INVALID. */
int arrayspec_job_at(const struct arrayspec *a, const json_t *template, size_t place, json_t **out,
                     struct sh_err *err);

#endif
