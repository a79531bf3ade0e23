/* audit.c - who changed what. */
#include "api/handlers.h"
#include "api/noun.h"
#include "api/store.h"

static int read_time(const struct api_req *q, const char *name, int64_t *out, struct sh_err *err)
{
    const char *text = uri_query(&q->uri, name);

    *out = -1;
    return text ? noun_read_time(name, text, out, err) : SH_OK;
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
        rc = read_time(q, "from", &f.from_ms, err);
    if (!rc)
        rc = read_time(q, "to", &f.to_ms, err);
    if (!rc)
        rc = store_audit_list(q->db, &f, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}
