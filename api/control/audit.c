/* audit.c - who changed what. */
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/store/store.h"

#include <string.h>

#define MAX_WORD 255

static int read_audit_time(const struct api_req *q, const char *name, int64_t *out,
                           struct sh_err *err)
{
    const char *text = uri_query(&q->uri, name);

    *out = -1;
    return text ? noun_read_time(name, text, out, err) : SH_OK;
}

static int check_word(const struct api_req *q, const char *name, struct sh_err *err)
{
    const char *text = uri_query(&q->uri, name);
    size_t len = text ? strlen(text) : 1;

    for (size_t i = 0; i < len && text; i++)
        if (text[i] < '!' || text[i] > '~')
            len = 0;
    if (len < 1 || len > MAX_WORD)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"%s\" must be 1 to %d visible ASCII characters, without spaces", name,
                       MAX_WORD);
    return SH_OK;
}

static int check_words(const struct api_req *q, struct sh_err *err)
{
    const char *tenant = uri_query(&q->uri, "tenant");
    int rc = tenant ? noun_check_tenant_name("tenant", tenant, err) : SH_OK;

    if (!rc)
        rc = check_word(q, "actor", err);
    if (!rc)
        rc = check_word(q, "action", err);
    return rc ? rc : check_word(q, "resource", err);
}

int audit_list(struct api_req *q, struct sh_err *err)
{
    struct store_audit f = {.tenant = uri_query(&q->uri, "tenant"),
                            .actor = uri_query(&q->uri, "actor"),
                            .action = uri_query(&q->uri, "action"),
                            .resource = uri_query(&q->uri, "resource")};
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = check_words(q, err);
    if (!rc)
        rc = read_audit_time(q, "from", &f.from_ms, err);
    if (!rc)
        rc = read_audit_time(q, "to", &f.to_ms, err);
    if (!rc)
        rc = store_audit_list(q->db, &f, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}
