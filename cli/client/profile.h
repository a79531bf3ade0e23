/* profile.h - profiles: the sections of the config file. */
#ifndef SH_CLI_CLIENT_PROFILE_H
#define SH_CLI_CLIENT_PROFILE_H

#include "cli/cli.h"

/* All of them, without their keys. OWNED; NULL if it cannot be read. */
json_t *config_profiles(struct cli *c);
/* Whether that profile has this value. */
bool config_has(struct cli *c, const char *profile, const char *name, const char *value);

#endif
