/* store.c - helpers that all statements use. */
#include "api/store/store.h"

#include "api/request/cursor.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

const char *store_text(char out[static 24], int64_t v)
{
    snprintf(out, 24, "%" PRId64, v);
    return out;
}

int store_json(const char *text, const char *name, json_t **out, struct sh_err *err)
{
    *out = sh_json_row(text);
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not read a row of \"%s\"", name);
}

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
    if (text)
        rc = store_json(text, s->name, out, err);
    db_res_free(res);
    return rc;
}

int store_slot(struct db *db, const struct db_stmt *s, const char *const *params,
               struct store_slot *out, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(db, s, params, &res, err);

    *out = (struct store_slot){0};
    if (!rc && db_rows(res) > 0) {
        out->id = db_i64(res, 0, 0, 0);
        sh_strlcpy(out->state, db_text(res, 0, 1), sizeof(out->state));
        out->open = db_bool(res, 0, 2);
        out->used_bytes = db_i64(res, 0, 3, 0);
        out->max_bytes = db_i64(res, 0, 4, 0);
        out->row_version = db_i64(res, 0, 5, 0);
        out->linger_bytes = db_i64(res, 0, 6, 0);
        out->max_batch = db_i64(res, 0, 7, 0);
        if (db_text(res, 0, 8))
            sh_strlcpy(out->buckets, db_text(res, 0, 8), sizeof(out->buckets));
    }
    db_res_free(res);
    return rc;
}

static int add_json_row(json_t *items, const struct db_res *res, size_t row,
                        const struct db_stmt *s, struct sh_err *err)
{
    json_t *j = sh_json_row(db_text(res, row, 1));

    if (!j || json_array_append_new(items, j))
        return SH_FAIL(err, SH_E_NOMEM, "could not read a row of \"%s\"", s->name);
    return SH_OK;
}

int store_page(struct db *db, const struct db_stmt *s, const char *const *params,
               const struct req_page *page, json_t **out, struct sh_err *err)
{
    struct db_res *res = NULL;
    json_t *items = json_array(), *j = NULL;
    char cursor[CURSOR_TEXT];
    size_t n;
    int rc;

    *out = NULL;
    rc = items ? db_exec(db, s, params, &res, err)
               : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    if (rc)
        goto out;
    n = SH_MIN(db_rows(res), (size_t)page->limit);
    for (size_t i = 0; !rc && i < n; i++)
        rc = add_json_row(items, res, i, s, err);
    if (rc)
        goto out;
    j = json_pack("{s:O}", "items", items);
    if (j && db_rows(res) > n && n > 0) {
        rc = cursor_seal(page->cursor_key, page->list, db_i64(res, n - 1, 0, 0), cursor, err);
        json_object_set_new(j, "next_cursor", rc ? NULL : json_string(cursor));
    }
    if (!j)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    if (rc)
        goto out;
    *out = j;
    j = NULL; /* now the caller's */
out:
    json_decref(j);
    json_decref(items);
    db_res_free(res);
    return rc;
}
