/* profile.h - profiles: the sections of the config file. */
#ifndef SH_CLI_CLIENT_PROFILE_H
#define SH_CLI_CLIENT_PROFILE_H

#include "cli/cli.h"

/* All profiles, without their keys. OWNED; NULL: the file cannot be read. */
json_t *config_profiles(struct cli *c);
/* Does the profile have this value? */
bool config_has(struct cli *c, const char *profile, const char *name, const char *value);

#endif
