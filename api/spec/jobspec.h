/* jobspec.h - the spec of a submitted job, and whether model and dataset fit it. Pure.
 *
 * Everything that can be known before the job runs is checked here, so that a queued job fails
 * because of the machine and not because of a typing error.
 */
#ifndef SH_API_SPEC_JOBSPEC_H
#define SH_API_SPEC_JOBSPEC_H

#include "common/dtype.h"
#include "common/json.h"
#include "common/train_spec.h"

struct jobspec { /* strings and spec are BORROWED from the body */
    const char *kind, *model, *dataset, *eval_dataset, *queue, *name, *client_token;
    int64_t version, priority, max_attempts; /* version 0: not named; or JOBSPEC_LATEST */
    const char *deadline;                    /* NULL: none */
    const json_t *label_map;                 /* NULL: none */
    int64_t min_runtime_ms, gpus;
    bool hold, preemptible;
    const json_t *spec;
    bool is_batch;            /* batch inference: batchspec.h; else training */
    struct train_spec train;  /* for training */
    int64_t batch;            /* 0: the version's max_batch; never 0 for training */
    bool names_batch;         /* the spec names the batch */
    const json_t *map, *keep; /* for batch inference: "inputs", "outputs"; NULL: none */
};

#define JOBSPEC_MAX_LABELS 32u
#define JOBSPEC_MAX_TEXT 128 /* characters in a name, and in a label's text */
#define JOBSPEC_LATEST SH_JSON_WORD

struct jobspec_want { /* a tensor of a dataset */
    const char *dataset, *tensor;
    enum sh_dtype dtype;
    const json_t *shape; /* axis 0 is ignored */
    bool may_be_bytes;   /* a picture may be UINT8: training converts it */
    const char *advice;  /* appended to "it has: ..."; NULL: none */
};

/* If no version is named, training starts from the newest uploaded one, since what another job has
 * trained meanwhile is not a base that its owner chose; "latest" means the newest of all. Batch
 * inference uses the newest of all, as requests do.
 *
 * Fails: SH_E_INVALID, with all faults in err->faults; SH_E_MULTIGPU: it asks for more GPUs than
 * this release runs a job on. */
int jobspec_read(const json_t *body, struct jobspec *out, struct sh_err *err);
/* Checks a change: {"priority","labels","deadline"}, at least one of them; null removes a label or
 * the deadline. */
int jobspec_read_patch(const json_t *body, struct sh_err *err);
/* Does it start from the newest uploaded version? */
bool jobspec_wants_upload(const struct jobspec *s);
bool jobspec_is_label(const char *key);
/* version: {"inputs","outputs","meta","state","max_batch"...}. If the file fixes the batch and a
 * training spec names none, writes it into s and its spec. Fails: SH_E_CONFLICT (not usable yet),
 * SH_E_UNSUPPORTED (not trainable, or the loss does not fit its output), SH_E_INVALID (not the
 * file's batch; for batch inference see batchspec.h). */
int jobspec_fits_model(struct jobspec *s, const json_t *version, struct sh_err *err);
/* Names of what the job trains although the model's file does not say whether it is a parameter or
 * a buffer. OWNED; NULL: there are none. */
json_t *jobspec_assumes(const struct jobspec *s, const json_t *version);
/* The tensor with this name in a list of {"name", ...}. BORROWED; NULL: none. */
const json_t *jobspec_find_tensor(const json_t *list, const char *name);
/* dataset: {"tensors","n_samples","state","max_storage_bytes"}; is_main: the job's dataset, not
 * that of its evaluations. It must have every input of the model, and the labels unless training
 * makes them. Fails: SH_E_CONFLICT; SH_E_INVALID, naming the tensor, what it is and what is wanted;
 * SH_E_TOOBIG. */
int jobspec_fits_dataset(const struct jobspec *s, bool is_main, const json_t *version,
                         const char *name, const json_t *dataset, struct sh_err *err);

/* Is it among the dataset's tensors, as it has to be? */
int jobspec_check_tensor(const json_t *tensors, const struct jobspec_want *w, struct sh_err *err);

#endif
