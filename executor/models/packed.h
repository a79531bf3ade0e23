/* packed.h - images that travel packed (runtime/pack/pack.h): what of them on the device is still
 * packed, and what the worker of a run has to unpack. */
#ifndef SH_EXECUTOR_MODELS_PACKED_H
#define SH_EXECUTOR_MODELS_PACKED_H

#include "executor/models/store.h"

/* Bytes that go over the link if the device has the first `from`. */
uint64_t model_link_bytes(const struct model *m, uint64_t from);
/* So long the next run unpacks what is packed of it on the device, or on its way there. */
int64_t model_unpack_ns(const struct model *m);
/* What the worker of a run has to unpack. False: nothing. */
bool model_tell_packed(const struct model *m, struct msg_wk_run *r);
/* That run has ended. is_sure: no copy was given up, so damage would not be of its making. */
void model_on_unpacked(struct model *m, const struct msg_wk_run_done *d, bool is_sure);
/* Its worker has died: until it has a place again, nobody may run it. */
void model_spoil(struct model *m);
bool model_is_spoiled(const struct model *m);

/* ------------------------------------------------------------------ for this room */

/* Whether and when the image that is to be made should be packed. */
void packed__ask(const struct model *m, struct msg_wk_model *to);
/* Bytes of its image in host memory; shapes share that of their version. */
uint64_t packed__stored(const struct model *m, const struct msg_wk_model_done *d);
/* Ends of packed layers; empty: they are not. The other tables are there. Sets what follows. */
int packed__read(struct model *m, struct sh_blob link_ends, struct sh_err *err);
/* A longer range while it is packed, if that fits beside the workspace. */
void packed__take_spare(struct model *m, uint64_t ws);
/* Where more is to fit than that workspace: gives the longer range up, at once or on a later tick,
 * when nobody uses it; the image leaves the device for it. */
void packed__give_spare(struct model *m);
void packed__tick(struct model *m);
uint64_t packed__room(const struct model *m);       /* bytes of its range ... */
uint64_t packed__least_room(const struct model *m); /* ... and without what is longer */
/* Blocks of its range, and without tables; 0: it has none. */
uint32_t packed__blocks(uint64_t bytes);
uint32_t packed__short_blocks(const struct model *m);
struct tx_image packed__tx(const struct model *m);
/* Of the first `held` bytes on the device, those that can be used, or unpacked. */
uint64_t packed__usable(const struct model *m, uint64_t held);
/* Before it gets a place: gives up packed layers that are of no use. Fails: SH_E_DEVMEM: they are
 * still on their way. */
int packed__settle(struct model *m, struct sh_err *err);
void packed__send(struct model *m);       /* what it lacks is on its way to its place */
void packed__take_apart(struct model *m); /* all of it is to be unpacked from its packed copy */
void packed__forget(struct model *m);     /* no packed layers are on the device */

#endif
