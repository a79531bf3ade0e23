/* apart_state.h - what is known of an image's packed copy on the device: see apart.h. */
#ifndef SH_EXECUTOR_MODELS_APART_STATE_H
#define SH_EXECUTOR_MODELS_APART_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define APART_NEVER 1000 /* store_env.keep_packed_percent, --keep-packed-percent */

enum model_apart { APART_NONE, APART_COMING, APART_WHOLE, APART_N_STATES };
struct apart { /* zeroed: there is none */
    enum model_apart at;
    bool has_res;    /* it has a place, or those who hold it still think so */
    bool is_source;  /* layers that are packed are unpacked from there, not in place */
    bool is_proven;  /* all of it has been unpacked once, and was sound */
    uint32_t res;    /* its id in residency.h */
    uint32_t n_held; /* by runs: pins */
    size_t off;      /* bytes in the arena */
};

#endif
