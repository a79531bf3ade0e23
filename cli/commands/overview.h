/* overview.h - what runs, for `shunt status` and `shunt top`. */
#ifndef SH_CLI_COMMANDS_OVERVIEW_H
#define SH_CLI_COMMANDS_OVERVIEW_H

#include "cli/cli.h"

struct overview_left { /* out of the list, as far as we know */
    size_t waiting, ended;
    bool or_more; /* others may have ended */
};

/* Of all tenants that the key may see. OWNED; NULL with the reason, such as that it may not. */
json_t *overview_models(struct cli *c, struct sh_err *why);
/* Those that live and the last few that ended: a system that has been up for a month has ten
 * thousand. for_people: arrays folded, and of those that wait the first few. As above. */
json_t *overview_jobs(struct cli *c, bool for_people, struct overview_left *left,
                      struct sh_err *why);
/* Executors, models and jobs, below a line. */
void overview_print(struct cli *c);
/* Does the probe at this path say yes? why: "ok", or what it says. */
bool overview_health(struct cli *c, const char *path, char *why, size_t size);

#endif
