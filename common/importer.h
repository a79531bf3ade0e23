/* importer.h - the revision of the rules by which an importer finds a model's parameters in the
 * user's file, and training writes them back there.
 *
 * A package has that of who made it: the first members of its graph.json are
 * {"version":1,"importer":N. It rises when training on a package that was made before would not get
 * all of its parameters back into the file.
 */
#ifndef SH_COMMON_IMPORTER_H
#define SH_COMMON_IMPORTER_H

#include <stdint.h>

#define SH_IMPORTER 2

/* Of the package in this folder; 0: older than revisions are, or it cannot be read. */
int64_t sh_importer_of(const char *package);

#endif
