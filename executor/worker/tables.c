/* tables.c - see tables.h. */
#include "executor/worker/tables.h"

#include "common/log.h"
#include "common/wire.h"

#include <inttypes.h>

void tables_drop(struct worker *w, struct wk_model *m)
{
    if (m->tables_device)
        dev_leave_host(w->dev, m->tables.base);
    m->tables_device = NULL;
    if (m->tables.base)
        sh_shm_fini(&m->tables);
    m->tables = (struct sh_shm){.fd = -1};
}

static size_t bytes_of_tables(const struct wk_model *m)
{
    const struct program *p = m->program[m->n_batches - 1];

    return program_image_bytes(p) - program_tables_at(p);
}

static int map_tables(struct worker *w, struct wk_model *m, const struct msg_wk_tables *t, int fd,
                      struct sh_err *err)
{
    int rc;

    if (t->bytes == 0 || t->bytes != bytes_of_tables(m))
        return SH_FAIL(err, SH_E_PROTO, "%" PRIu64 " bytes of tables came, not %zu", t->bytes,
                       bytes_of_tables(m));
    rc = sh_shm_map_file(fd, t->at, (size_t)t->bytes, &m->tables, err);
    if (!rc)
        rc = dev_reach_host(w->dev, m->tables.base, (size_t)t->bytes, &m->tables_device, err);
    if (rc)
        tables_drop(w, m);
    return rc;
}

int tables_on_message(struct worker *w, const struct msg_wk_tables *t, const int *fds, size_t n_fds,
                      struct sh_err *err)
{
    struct wk_model *m = infer_find(w, t->handle);
    struct sh_msg r = {.type = MSG_WK_TABLES_DONE};
    struct sh_err why = {0};
    int rc = SH_OK;

    if (m)
        tables_drop(w, m);
    if (n_fds == 0)
        return SH_OK;
    if (!m || m->base != m)
        rc = SH_FAIL(&why, SH_E_NOTFOUND, "this worker does not have the model of these tables");
    else
        rc = map_tables(w, m, t, fds[0], &why);
    if (rc)
        sh_log_err(SH_LOG_WARN, "tables.map", &why);
    r.u.wk_tables_done =
        (struct msg_wk_tables_done){.handle = t->handle, .turn = t->turn, .rc = rc, .msg = why.msg};
    return worker_send(w, &r, NULL, 0, err);
}

int tables_find(const struct wk_model *m, const struct program *p, const struct msg_wk_run *r,
                struct dev_bases *b, struct sh_err *err)
{
    if (program_n_tables(p) == 0)
        return SH_OK;
    if (r->tables != MSG_TABLES_IN_HOST) {
        b->tables = r->tables_off;
        return SH_OK;
    }
    b->host_tables = m->base->tables_device;
    b->host_bytes = m->base->tables.bytes;
    return b->host_tables ? SH_OK
                          : SH_FAIL(err, SH_E_UNAVAILABLE,
                                    "the tables of the model are not in host memory; try again");
}

int tables_wait(struct worker *w, const struct program *p, const struct msg_wk_run *r,
                struct sh_err *err)
{
    const size_t n = r->groups.len / sizeof(struct msg_group);
    struct msg_group last;

    if (program_n_tables(p) == 0 || r->tables == MSG_TABLES_IN_HOST || n == 0)
        return SH_OK;
    memcpy(&last, (const char *)r->groups.data + (n - 1) * sizeof(last), sizeof(last));
    return last.ticket_slot < DEV_N_TICKETS ? dev_wait(w->dev, last.ticket_slot, last.ticket_value,
                                                       WORKER_TICKET_TIMEOUT_MS, err)
                                            : SH_OK;
}
