/* db_res.c - results of statements: cells by position, rows by column names. */
#include "common/db_int.h"
#include "common/mem.h"

#include <stdlib.h>

void db_res_free(struct db_res *r)
{
    if (!r)
        return;
    PQclear(r->r);
    free(r);
}

size_t db_rows(const struct db_res *r)
{
    return r ? (size_t)PQntuples(r->r) : 0;
}

const char *db_text(const struct db_res *r, size_t row, size_t col)
{
    if (row >= db_rows(r) || col >= (size_t)PQnfields(r->r) ||
        PQgetisnull(r->r, (int)row, (int)col))
        return NULL;
    return PQgetvalue(r->r, (int)row, (int)col);
}

int64_t db_i64(const struct db_res *r, size_t row, size_t col, int64_t if_null)
{
    const char *s = db_text(r, row, col);
    int64_t v = if_null;

    if (s)
        sh_parse_i64(s, INT64_MIN, INT64_MAX, "column", &v, NULL);
    return v;
}

double db_f64(const struct db_res *r, size_t row, size_t col, double if_null)
{
    const char *s = db_text(r, row, col);
    char *end = NULL;
    double v;

    if (!s)
        return if_null;
    v = strtod(s, &end); /* reads NaN and Infinity as PostgreSQL writes them */
    return end != s && *end == '\0' ? v : if_null;
}

bool db_bool(const struct db_res *r, size_t row, size_t col)
{
    const char *s = db_text(r, row, col);

    return s && s[0] == 't';
}

static void read_column(const struct db_res *r, size_t row, size_t col, const struct db_field *f,
                        void *to)
{
    const bool is_int = f->type <= DB_U64;
    const int64_t n = is_int ? db_i64(r, row, col, (int64_t)f->if_null) : 0;

    switch (f->type) {
    case DB_I64:
        *(int64_t *)to = n;
        break;
    case DB_I32:
        *(int32_t *)to = (int32_t)n;
        break;
    case DB_U32:
        *(uint32_t *)to = (uint32_t)n;
        break;
    case DB_U64:
        *(uint64_t *)to = (uint64_t)n;
        break;
    case DB_F64:
        *(double *)to = db_f64(r, row, col, f->if_null);
        break;
    case DB_BOOL:
        *(bool *)to = db_bool(r, row, col);
        break;
    case DB_TEXT:
        *(const char **)to = db_text(r, row, col);
        break;
    }
}

int db_read_rows(const struct db_res *r, const struct db_field *f, size_t n, size_t row_bytes,
                 void *rows, struct sh_err *err)
{
    int cols[DB_MAX_FIELDS];

    if (n > DB_MAX_FIELDS)
        return SH_FAIL(err, SH_E_BUG, "%zu columns are more than %d", n, DB_MAX_FIELDS);
    for (size_t i = 0; i < n; i++) {
        cols[i] = PQfnumber(r->r, f[i].column);
        if (cols[i] < 0)
            return SH_FAIL(err, SH_E_BUG, "the result has no column \"%s\"", f[i].column);
    }
    for (size_t row = 0; row < db_rows(r); row++)
        for (size_t i = 0; i < n; i++)
            read_column(r, row, (size_t)cols[i], &f[i], (char *)rows + row * row_bytes + f[i].at);
    return SH_OK;
}

size_t db_affected(const struct db_res *r)
{
    int64_t n = 0;

    if (r && PQcmdTuples(r->r)[0])
        sh_parse_i64(PQcmdTuples(r->r), 0, INT64_MAX, "rows", &n, NULL);
    return (size_t)n;
}
