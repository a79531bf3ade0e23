/* claim.h - to which state folder a private PostgreSQL cluster belongs.
 *
 * The file made-for in the cluster's folder identifies the state folder: the id in its mark, its
 * inode and its path. A renamed folder has the same inode; a copy has another inode and the same
 * id.
 */
#ifndef SH_CLI_LOCAL_CLAIM_H
#define SH_CLI_LOCAL_CLAIM_H

#include "cli/local/state.h"

struct claim {
    char id[STATE_ID_MAX];
    uint64_t inode;
    char path[1024];
};

/* pg_dir: the folder that holds data/. Fails: SH_E_NOTFOUND: there is no cluster, or its release
 * wrote no claim. */
int claim_read(const char *pg_dir, struct claim *out, struct sh_err *err);
int claim_write(const struct state *s, const char *pg_dir, struct sh_err *err);
/* Did this state folder make the claim, perhaps under another name? A copy did not while the
 * original is there. */
bool claim_is_ours(const struct state *s, const struct claim *c);
bool claim_is_same_folder(const struct state *s, const struct claim *c);

#endif
