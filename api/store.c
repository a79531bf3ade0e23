/* store.c - the forms that statements share. */
#include "api/store.h"

#include "common/mem.h"

int store_one(struct db *db, const struct db_stmt *s, const char *const *params, json_t **out,
              struct sh_err *err)
{
    struct db_res *res = NULL;
    const char *text;
    int rc;

    *out = NULL;
    rc = db_exec(db, s, params, &res, err);
    if (rc)
        return rc;
    text = db_rows(res) > 0 ? db_text(res, 0, 0) : NULL;
    if (text) {
        *out = json_loads(text, JSON_DECODE_ANY, NULL);
        if (!*out)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not read a row of \"%s\"", s->name);
    }
    db_res_free(res);
    return rc;
}

static int add_row(json_t *items, const struct db_res *res, size_t row, const struct db_stmt *s,
                   struct sh_err *err)
{
    json_t *j = json_loads(db_text(res, row, 1), JSON_DECODE_ANY, NULL);

    if (!j || json_array_append_new(items, j))
        return SH_FAIL(err, SH_E_NOMEM, "could not read a row of \"%s\"", s->name);
    return SH_OK;
}

int store_page(struct db *db, const struct db_stmt *s, const char *const *params,
               const struct req_page *page, json_t **out, struct sh_err *err)
{
    struct db_res *res = NULL;
    json_t *items = json_array(), *j = NULL;
    char cursor[40];
    size_t n;
    int rc;

    *out = NULL;
    rc = items ? db_exec(db, s, params, &res, err)
               : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    if (rc)
        goto out;
    n = SH_MIN(db_rows(res), (size_t)page->limit);
    for (size_t i = 0; !rc && i < n; i++)
        rc = add_row(items, res, i, s, err);
    if (rc)
        goto out;
    j = json_pack("{s:O}", "items", items);
    if (j && db_rows(res) > n && n > 0) {
        cursor_encode(db_i64(res, n - 1, 0, 0), cursor);
        json_object_set_new(j, "next_cursor", json_string(cursor));
    }
    if (!j)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    *out = j;
out:
    json_decref(items);
    db_res_free(res);
    return rc;
}
