/* image_of.h - where the image of one version stands: in host memory (tier.h), its tables
 * (tables.h), what of it others have as well (share.h), and on its way to the device. */
#ifndef SH_EXECUTOR_MODELS_IMAGE_OF_H
#define SH_EXECUTOR_MODELS_IMAGE_OF_H

#include "runtime/model/kept.h"

#include <stdbool.h>

enum model_tier { TIER_HOST, TIER_DISK, TIER_COMING };

struct tier { /* tier.h */
    enum model_tier at;
    bool is_lost;              /* its file is damaged */
    bool is_over;              /* it came without room in host memory: others leave when they can */
    struct kept_pieces pieces; /* but in TIER_HOST; fd and crc are OWNED */
    bool maps;                 /* its memory is the file's */
    uint32_t first, n_read;    /* COMING: the piece that was read first; so many are there */
    uint32_t n_asked;          /* ... or asked for */
    struct tier_read *reads;   /* OWNED [TIER_READS]: under way */
};

enum tables_at { TABLES_AWAY, TABLES_COMING, TABLES_HERE, TABLES_N_AT };

struct tables {              /* tables.h */
    uint32_t n;              /* so many of the last layers; 0: it has none */
    enum tables_at at;       /* on the device */
    int fd;                  /* OWNED: what workers map; -1: its image is not in host memory */
    uint64_t file_at;        /* where the image begins there */
    uint64_t turn;           /* so often it has come there: answers to earlier turns do not count */
    uint64_t mapped_in;      /* workers that can read them, a bit each */
    double copy_ns, link_ns; /* by which its maker decided; 0: nobody was asked */
};

#ifndef SHARE_CHUNK /* the simulation has small ones: tests/sim/blocks.h */
#define SHARE_CHUNK ((size_t)2 << 20)
#endif

struct trunk;
struct share {      /* share.h */
    uint32_t *sums; /* OWNED [n]: of its whole chunks; NULL: not known */
    uint32_t n;
    bool is_compared;    /* with the sums of all others, and copied if one was like it */
    bool is_alone;       /* something failed too often: it stays as it is */
    uint32_t n_tries;    /* that came to nothing, and ... */
    int64_t again_ns;    /* ... the next one is not before this */
    struct trunk *trunk; /* what it shares with others; NULL: nothing */
    uint8_t *is_there;   /* OWNED [n]: this chunk is the trunk's */
    uint64_t less;       /* bytes that it does not count for, as they are others' part */
    uint64_t stays;      /* of its bytes, those that others have, too */
};

enum model_rest {                     /* of its groups, those that are still to be sent */
                  MODEL_REST_NONE,    /* there are none */
                  MODEL_REST_ASKED,   /* model_transmit_rest() sends them */
                  MODEL_REST_AHEAD,   /* nobody has asked: ahead.c sends one after the other ... */
                  MODEL_REST_GIVEN_UP /* ... or no more, as somebody needs the memory */
};

#endif
