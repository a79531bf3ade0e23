/* fetch.h - takes what is kept of a model from the memory of another executor, over the data link,
 * so that this one need not make it.
 *
 * The scheduler names one whose image is in host memory (MODEL_LOAD). The key of what is kept
 * (kept_dir.h) names it on all hosts, so another build, device or tenant gets nothing. It comes
 * into memory here, then into kept/, and is loaded from there like what this host has made itself.
 * All checksums are looked at then, as always. Without an answer for FETCH_SILENT_NS, or if it
 * comes at less than 10 MB/s, or what comes is not what was asked for, or the other one lets the
 * image go meanwhile, the model is loaded without it. While FETCH_MOST are under way, others are
 * loaded without it, too: what comes is in memory that is not counted (host.h).
 */
#ifndef SH_EXECUTOR_MODELS_FETCH_H
#define SH_EXECUTOR_MODELS_FETCH_H

#include "common/units.h"
#include "common/wire.h"
#include "executor/models/store.h"

#define FETCH_SILENT_NS SH_S(3)
#define FETCH_MOST 4u

/* Begins it if there is a reason to, once for each load. True: it is under way, the load waits. */
bool fetch_delays(struct model *m);
bool fetch_is_under_way(const struct model *m);
void fetch_tick(struct model *m, int64_t now_ns);
bool fetch_is_keeping(const struct model *m); /* the disk thread still knows the model */
void fetch_free(struct model *m);             /* what was under way comes to nothing */

/* Answers an executor that asks for what is kept of one of our models. */
void fetch_answer(struct store *s, struct sh_wire *w, const struct msg_image_get *get);

#endif
