/* system.h - what `shunt up` with the same options would need: programs, a folder that keeps what
 * is written, free ports, PostgreSQL. */
#ifndef SH_CLI_HOST_SYSTEM_H
#define SH_CLI_HOST_SYSTEM_H

#include "cli/cli.h"
#include "cli/host/checks.h"

/* Writes and removes one small file in the state folder, or in the nearest folder above it that is
 * there. Connects to the database that is given. */
void system_check(const struct cli_conf *o, struct checks *k);

#endif
