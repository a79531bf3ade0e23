/* docs.h - the documentation as a site: the pages that `make docs-site` writes, under /docs.
 *
 * They are files of --docs-dir, or else of the folder in which a build or a package has them,
 * beside our own program. They are looked for at each request, so a site that is built later is
 * there at once. They need no key, are the same for everybody, and go out with the policy of the
 * console.
 */
#ifndef SH_API_CONSOLE_DOCS_H
#define SH_API_CONSOLE_DOCS_H

#include "api/request/req.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The media type of a file of the site by its name; NULL: it is none that a site has, or the name
 * begins with a dot or has a character that none of ours has. */
const char *docs_type(const char *name);
/* Does this server have a site? */
bool docs_are_there(const struct api_req *q);

#endif
