/* apart.h - packed images that stay on the device: a copy of an image as it travels, apart from
 * where it is unpacked, so that it may be unpacked any number of times. What is unpacked gives way
 * before it does (memory/residency.h), and comes back without the link. */
#ifndef SH_EXECUTOR_MODELS_APART_H
#define SH_EXECUTOR_MODELS_APART_H

#include "executor/models/store.h"

/* All of it is there, and nothing is under way to it: the image needs no link. */
bool model_is_apart(const struct model *m);
/* The lane still scrubs or moves something where the image is to be unpacked: a copy would come
 * behind that, a worker would not. */
bool model_waits_for_place(const struct model *m);
/* A run's worker unpacks from there, and nobody may take it meanwhile. False: it does not. */
bool model_hold_apart(struct model *m);
void model_let_apart_go(struct model *m); /* of who holds it */
/* It is in the way of its own image, or of the workspace of a run. False: there is none to give. */
bool model_yield_apart(struct model *m);
uint64_t store_apart_bytes(struct store *s); /* of all packed copies */

/* ------------------------------------------------------------------ for this room */

/* May its image have a packed copy on the device, and is that worth its memory now? */
bool apart__is_wanted(const struct model *m);
/* Before the image gets a place: has it lost its packed copy? It is used, in any case. */
void apart__look(struct model *m);
/* Gives it a place, to which it is copied next. The image has its own. Without may_evict it takes
 * free room only, and not what is kept free for runs. False: it found none. */
bool apart__place(struct model *m, bool may_evict);
/* Its last copy has ended: it is whole, or (is_lost) it is not. */
void apart__arrived(struct model *m, bool is_lost);
/* It is given up, or the model goes. */
void apart__lose(struct model *m);
/* Once a second: a pinned image that is unpacked stays so, and needs none. */
void apart__second(struct model *m);
/* What packed layers that count as there are to be unpacked from is gone. */
bool apart__has_lost_source(const struct model *m);

#endif
