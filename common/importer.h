/* importer.h - the revision of the rules by which the importer finds a model's parameters in the
 * user's file and training writes them back.
 *
 * A package records the revision of its importer: its graph.json begins with
 * {"version":1,"importer":N. Raise the revision if training on an older package would no longer
 * write all its parameters back to the file.
 */
#ifndef SH_COMMON_IMPORTER_H
#define SH_COMMON_IMPORTER_H

#include <stdint.h>

#define SH_IMPORTER 5

/* The revision of the package in this folder; 0: older than revisions, or unreadable. */
int64_t sh_importer_of(const char *package);

#endif
