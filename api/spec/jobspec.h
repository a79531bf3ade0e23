/* jobspec.h - what a submitted job asks for, and whether model and dataset fit it. Pure.
 *
 * Everything that can be known before the job runs is checked here, so that a job in the queue
 * fails for reasons of the machine and not for a typing error.
 */
#ifndef SH_API_SPEC_JOBSPEC_H
#define SH_API_SPEC_JOBSPEC_H

#include "common/dtype.h"
#include "common/json.h"
#include "common/train_spec.h"

struct jobspec { /* strings and spec are BORROWED from the body */
    const char *kind, *model, *dataset, *eval_dataset, *queue, *name, *client_token;
    int64_t version, priority, max_attempts; /* version 0: none is named, or JOBSPEC_LATEST */
    const char *deadline;                    /* NULL: none */
    const json_t *label_map;                 /* NULL: none */
    int64_t min_runtime_ms;
    bool hold, preemptible;
    const json_t *spec;
    bool is_batch;            /* batch inference: batchspec.h; else training */
    struct train_spec train;  /* of training */
    int64_t batch;            /* 0: the version's max_batch; of training never */
    bool names_batch;         /* the spec says it */
    const json_t *map, *keep; /* of batch inference: "inputs", "outputs"; NULL: none */
};

#define JOBSPEC_MAX_LABELS 32u
#define JOBSPEC_MAX_TEXT 128 /* characters of a name, and of a label's text */
#define JOBSPEC_LATEST SH_JSON_WORD

struct jobspec_want { /* a tensor of a dataset */
    const char *dataset, *tensor;
    enum sh_dtype dtype;
    const json_t *shape; /* axis 0 is not compared */
    bool may_be_bytes;   /* a picture may be UINT8: training converts it */
    const char *advice;  /* behind "it has: ..."; NULL: none */
};

/* Where no version is named training starts from the newest that was uploaded, for what another job
 * has trained since is no base that its owner chose; "latest" is the newest of all. Batch inference
 * is of the newest of all, as requests are.
 *
 * Fails: SH_E_INVALID, with all that is wrong in err->faults. */
int jobspec_read(const json_t *body, struct jobspec *out, struct sh_err *err);
/* A change: {"priority","labels","deadline"}, at least one of them. A label that is null is
 * removed, and so is a deadline. */
int jobspec_read_patch(const json_t *body, struct sh_err *err);
/* Does it start from the newest version that was uploaded? */
bool jobspec_wants_upload(const struct jobspec *s);
bool jobspec_is_label(const char *key);
/* version: {"inputs","outputs","meta","state","max_batch"...}. Where the file fixes the batch and
 * the spec of a training names none, it is written into s and its spec. Fails: SH_E_CONFLICT (not
 * usable yet), SH_E_UNSUPPORTED (not trainable, or the loss does not fit its output), SH_E_INVALID
 * (not the batch of the file; batch inference: see batchspec.h). */
int jobspec_fits_model(struct jobspec *s, const json_t *version, struct sh_err *err);
/* The tensor of that name, of a list of {"name", ...}, BORROWED; NULL: there is none. */
const json_t *jobspec_find_tensor(const json_t *list, const char *name);
/* dataset: {"tensors","n_samples","state","max_storage_bytes"}; is_main: it is the job's dataset,
 * not that of its evaluations. Every input of the model must be there, and the labels, unless
 * training makes them. Fails: SH_E_CONFLICT, SH_E_INVALID naming tensor, got and wanted,
 * SH_E_TOOBIG. */
int jobspec_fits_dataset(const struct jobspec *s, bool is_main, const json_t *version,
                         const char *name, const json_t *dataset, struct sh_err *err);

/* Is it among the dataset's tensors, as it has to be? */
int jobspec_check_tensor(const json_t *tensors, const struct jobspec_want *w, struct sh_err *err);

#endif
