/* db_env.c - db_environment() of db.h. */
#include "common/db.h"
#include "common/mem.h"

#include <postgresql/libpq-fe.h>
#include <stdlib.h>

int db_environment(const char *url, char *out[static DB_ENV_MAX], struct sh_err *err)
{
    char *why = NULL;
    PQconninfoOption *all = PQconninfoParse(url, &why);
    size_t n = 0;
    int rc = SH_OK;

    for (size_t i = 0; i < DB_ENV_MAX; i++)
        out[i] = NULL;
    if (!all)
        rc = SH_FAIL(err, SH_E_INVALID, "the address of the database cannot be read: %s",
                     why ? why : "no memory");
    for (const PQconninfoOption *o = all; !rc && o && o->keyword; o++) {
        if (!o->val || !o->val[0] || !o->envvar)
            continue;
        if (n + 1 >= DB_ENV_MAX)
            rc = SH_FAIL(err, SH_E_TOOBIG, "the address of the database has too many parts");
        else
            rc = sh_asprintf(err, &out[n++], "%s=%s", o->envvar, o->val);
    }
    PQfreemem(why);
    PQconninfoFree(all);
    if (rc)
        db_environment_free(out);
    return rc;
}

void db_environment_free(char *out[static DB_ENV_MAX])
{
    for (size_t i = 0; i < DB_ENV_MAX; i++) {
        free(out[i]);
        out[i] = NULL;
    }
}
