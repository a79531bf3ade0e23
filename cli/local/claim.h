/* claim.h - whose the private PostgreSQL cluster in a folder is.
 *
 * The file made-for in the cluster's folder says for which state folder it was made: the id that
 * the state folder's mark holds, the folder's inode and its path. A folder that was renamed has the
 * same inode; one that was copied has another one, and the same id.
 */
#ifndef SH_CLI_LOCAL_CLAIM_H
#define SH_CLI_LOCAL_CLAIM_H

#include "cli/local/state.h"

struct claim {
    char id[STATE_ID_MAX];
    uint64_t inode;
    char path[1024];
};

/* pg_dir: the folder that holds data/. SH_E_NOTFOUND: of a release that wrote none, or no cluster.
 * */
int claim_read(const char *pg_dir, struct claim *out, struct sh_err *err);
int claim_write(const struct state *s, const char *pg_dir, struct sh_err *err);
/* Is the state folder the one that the claim was made by, perhaps under another name? A copy is not
 * while the original is there. */
bool claim_is_ours(const struct state *s, const struct claim *c);
bool claim_is_same_folder(const struct state *s, const struct claim *c);

#endif
