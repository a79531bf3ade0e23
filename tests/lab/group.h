/* group.h - ways to cut layers into groups of copies other than the exact one (runtime/group.h). */
#ifndef SH_EXECUTOR_LAB_GROUP_H
#define SH_EXECUTOR_LAB_GROUP_H

#include "executor/memory/transmit.h"

enum lab_mode { LAB_OPTIMUM, LAB_PER_LAYER, LAB_ONE_GROUP, LAB_FIXED_2MB, LAB_N_MODES };

int lab_mode_parse(const char *name, enum lab_mode *out, struct sh_err *err);
const char *lab_mode_name(enum lab_mode m);

/* As tx_group(). Not for LAB_OPTIMUM. */
int lab_group(enum lab_mode mode, const uint64_t *missing, uint32_t n, uint32_t **ends,
              uint32_t *n_ends, struct sh_err *err);
/* Applies to images sent from now on. */
void lab_set_mode(struct tx *t, enum lab_mode mode);

#endif
