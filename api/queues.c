/* queues.c - the queues that a tenant may use. */
#include "api/handlers.h"
#include "api/noun.h"
#include "api/store.h"

int queues_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_queue_list(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}
