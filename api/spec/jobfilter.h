/* jobfilter.h - which jobs a list contains: ?state=QUEUED,HELD&queue=NAME&label=KEY=VALUE,...
 * &array=NUMBER. Pure. */
#ifndef SH_API_SPEC_JOBFILTER_H
#define SH_API_SPEC_JOBFILTER_H

#include "api/request/uri.h"
#include "common/err.h"

struct jobfilter {     /* each NULL: any */
    char *states;      /* OWNED: an SQL array; any of them */
    const char *queue; /* BORROWED from the URI */
    char *labels;      /* OWNED: a JSON object; all of them */
    const char *array; /* BORROWED from the URI: a number */
};

/* Fails: SH_E_INVALID naming the parameter. */
int jobfilter_read(const struct uri *u, struct jobfilter *out, struct sh_err *err);
void jobfilter_fini(struct jobfilter *f);

#endif
