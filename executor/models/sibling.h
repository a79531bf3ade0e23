/* sibling.h - the head of an image comes from the device where a sibling has the same.
 *
 * Images that share chunks in host memory (share.h) were compared byte by byte. So the layers that
 * lie in these chunks from the first one on are the same, packed or not, and also when they are
 * unpacked. If a sibling has them on the device, unpacked, they are copied there from one place to
 * the other, at the rate of the device's memory, and only the rest goes over the link.
 */
#ifndef SH_EXECUTOR_MODELS_SIBLING_H
#define SH_EXECUTOR_MODELS_SIBLING_H

#include "executor/models/store.h"

/* m has just got its place (m->at), and wants so many bytes of the image: what a sibling has of
 * them is on its way from there then, and m->at says so. */
void sibling__bring(struct model *m, uint64_t wanted);

#endif
