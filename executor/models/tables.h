/* tables.h - tables of embeddings that runs read in host memory, row by row, so that a cold run
 * copies none of them (runtime/model/tables.h). They are the last layers of an image; where they
 * are on the device decides a run's message.
 *
 *   AWAY    not all of them are on the device: runs read them in host memory, in place
 *   COMING  their copies are under way; runs still read them in place if they can
 *   HERE    runs read them on the device, as fast as ever
 *   AWAY -> COMING  the device is idle, the version is pinned, or a run cannot read them in place
 *                                                                           [tables__begin]
 *   COMING -> HERE  all have arrived                                        [tables__end]
 *   COMING -> AWAY  they were given up: somebody else needs the lane or the memory, or the device
 *                   has refused a copy                                      [tables__end]
 *   HERE -> AWAY    the tail of the image was evicted                       [tables__settle]
 *
 * In host memory they lie where the image lies, once: each worker that has the model maps the pages
 * of the tables for reading only, and page-locks them, off the path of a request. Runs read in
 * place only if all these workers have said that they can. Before the image leaves host memory they
 * are told to let it go; no run uses it then. Until it is back, and mapped anew, a run has the
 * tables copied, and waits for them. A mapping ends with the model in its worker: it holds nothing
 * that the worker has not been given to compile the model.
 */
#ifndef SH_EXECUTOR_MODELS_TABLES_H
#define SH_EXECUTOR_MODELS_TABLES_H

#include "executor/models/store.h"

/* Can a run read them in place, if it has to? */
bool model_reads_in_place(const struct model *m);
/* Bytes of the image that have to be on the device before a run of it ends. */
uint64_t model_run_bytes(const struct model *m);
/* What the scheduler is told is resident: all of the image if a run finds what it needs. */
uint64_t model_told_bytes(const struct model *m);
/* What the worker of a run that has its memory is told. False: not yet, it has to be given its
 * memory anew. */
bool model_tell_tables(const struct model *m, struct msg_wk_run *r);
/* A run has ended, which found of the image so many bytes: brings the tables if they are worth it
 * and nothing else is to be done. */
void model_bring_tables(struct model *m, uint64_t found);
/* WK_TABLES_DONE. */
void store_on_tables(struct store *s, struct worker *w, const struct msg_wk_tables_done *d);

/* ------------------------------------------------------------------ for this room */

extern const struct sh_life TABLES_LIFE;

/* Whether the image that is made should have some: each worker that makes it is asked the same. */
void tables__ask(struct model *m, struct msg_wk_model *to);
/* So many of its layers are of tables. Fails: SH_E_PROTO. */
int tables__read(struct model *m, uint32_t n, struct sh_err *err);
uint64_t tables__at(const struct model *m); /* where they begin in the image as it is compiled */
/* The image is in host memory: in a file that begins at `at`; fd is BORROWED. Workers are told. */
void tables__open(struct model *m, int fd, uint64_t at);
void tables__close(struct model *m);  /* it leaves */
void tables__forget(struct model *m); /* the same, and no worker is to have it any more */
void tables__offer(struct model *m, struct worker *w); /* w has the model now, and had it not */
/* Before the image gets a place: are they still here? */
void tables__settle(struct model *m);
/* It gets one, with the tables or without, and with all that they need of it. Fails: SH_E_DEVMEM: a
 * run uses the image where it is. */
int tables__begin(struct model *m, bool with, struct sh_err *err);
void tables__end(struct model *m, bool are_here);
/* Do other models have runs, waiting or not? */
bool tables__are_others_busy(const struct model *m);
/* Once a second. */
void tables__second(struct model *m);

#endif
