/* database_conn.c - the way to the database, and what can happen on it: the part of common/db.h
 * that the scheduler uses, and the faults of database.h.
 *
 * An operation is sent, takes effect when it arrives, and is answered. What becomes of it is drawn
 * when it is sent: so a commit of which nobody hears is one that took effect, or one that did not.
 */
#include "common/db.h"
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/database_int.h"

#include <stdlib.h>
#include <string.h>

#define USUAL_NS SH_US(900)
#define LIMIT_NS SH_S(2)      /* no call lasts longer */
#define AT_ONCE_NS SH_MS(100) /* after a failed connect others fail at once */

enum fate { FATE_GOOD, FATE_LOST, FATE_UNHEARD, FATE_TIMEOUT, FATE_SOFT };

struct db {
    unsigned host;
    uint64_t generation;
    bool is_open;
    uint64_t start;   /* of the server, when it was opened ... */
    uint64_t sent;    /* ... and when the operation was sent */
    uint64_t xid;     /* of the operation that is on its way; 0: it reads */
    int64_t fails_ns; /* until then, without trying */
    enum fate fate;
};

static struct {
    int64_t away_ns, slow_ns, slow_by_ns, cut_ns[SIM_MAX_HOSTS], doubt_ns, time_out_ns, no_log_ns;
    double doubt, time_out;
    uint64_t start;
} faults;

/* ------------------------------------------------------------------ connections */

int db_new(const char *url, const char *app, struct db **out, struct sh_err *err)
{
    (void)url, (void)app;
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a connection");
    (*out)->host = sim_self() ? sim_proc_host(sim_self()) : 0;
    return SH_OK;
}

void db_free(struct db *db)
{
    free(db);
}

uint64_t db_generation(const struct db *db)
{
    return db->generation;
}

bool database_is_reached_from(unsigned host)
{
    return sim_now() >= faults.away_ns && sim_now() >= faults.cut_ns[host];
}

static int down(struct db *db, const char *why, struct sh_err *err)
{
    db->is_open = false;
    return SH_FAIL(err, SH_E_DBDOWN, "the database %s", why);
}

static int connect_now(struct db *db, struct sh_err *err)
{
    if (db->is_open && db->start == faults.start)
        return SH_OK;
    if (sim_now() < db->fails_ns)
        return down(db, "was not reached a moment ago", err);
    if (!database_is_reached_from(db->host)) {
        db->fails_ns = sim_now() + AT_ONCE_NS;
        return down(db, "is not reached", err);
    }
    db->is_open = true;
    db->start = faults.start;
    db->generation++;
    return SH_OK;
}

int db_ready(struct db *db, int schema_want, struct sh_err *err)
{
    (void)schema_want;
    return connect_now(db, err);
}

/* ------------------------------------------------------------------ one operation */

static enum fate draw_fate(bool writes)
{
    if (writes && sim_now() < faults.no_log_ns)
        return FATE_SOFT;
    if (sim_now() < faults.doubt_ns && sim_chance(faults.doubt))
        return sim_chance(0.5) ? FATE_LOST : FATE_UNHEARD;
    if (sim_now() < faults.time_out_ns && sim_chance(faults.time_out))
        return sim_chance(0.7) ? FATE_TIMEOUT : FATE_SOFT;
    return FATE_GOOD;
}

static int64_t draw_way(void)
{
    int64_t add = sim_now() < faults.slow_ns ? sim_between(0, faults.slow_by_ns) : 0;

    return sim_between(SH_US(60), USUAL_NS) + add;
}

struct database_trip database__send(struct db *db, bool writes)
{
    struct database_trip t = {draw_way(), draw_way()};

    db->fate = draw_fate(writes);
    db->sent = faults.start;
    db->xid = writes ? database__xid() : 0;
    if (!database_is_reached_from(db->host) && sim_now() >= faults.away_ns)
        t.to_ns = LIMIT_NS; /* nobody says no */
    if (db->fate == FATE_TIMEOUT)
        t.back_ns += LIMIT_NS;
    if (t.to_ns + t.back_ns > LIMIT_NS && db->fate == FATE_GOOD)
        t.back_ns = SH_US(60); /* slow, and just in time */
    return t;
}

void database__hang_up(struct db *db)
{
    if (db->xid && db->sent == faults.start)
        database__abort(db->xid);
    db->xid = 0;
}

static int fail(struct db *db, struct sh_err *err)
{
    switch (db->fate) {
    case FATE_LOST:
        return down(db, "lost the connection", err);
    case FATE_TIMEOUT:
        return SH_FAIL(err, SH_E_TIMEOUT, "the database took too long");
    case FATE_SOFT:
        return SH_FAIL(err, SH_E_DBSOFT, "others changed the same");
    case FATE_GOOD:
    case FATE_UNHEARD:
        break;
    }
    return SH_OK;
}

int database__begin(struct db *db, struct sh_err *err)
{
    int rc = SH_OK;

    if (db->sent != faults.start)
        rc = down(db, "was started anew", err);
    if (!rc)
        rc = connect_now(db, err);
    if (!rc && !database_is_reached_from(db->host))
        rc = down(db, "is gone", err);
    if (!rc)
        rc = fail(db, err);
    if (rc)
        database__hang_up(db);
    else if (db->xid)
        database__enter(db->xid);
    return rc;
}

int database__end(struct db *db, int rc, struct sh_err *err)
{
    bool writes = db->xid != 0;

    db->xid = 0;
    if (writes)
        database__leave(rc == SH_OK);
    if (rc == SH_OK && writes && db->fate == FATE_UNHEARD)
        return down(db, "lost the connection while it committed", err);
    return rc;
}

/* ------------------------------------------------------------------ faults */

static int64_t until(int64_t for_ns)
{
    return sim_now() + for_ns;
}

void database_stop(int64_t for_ns)
{
    faults.away_ns = until(for_ns);
    faults.start++;
    /* What is on its way fails when it arrives: it belongs to the server that was before. */
    database.n_open = 0;
    database.last_done_xid = database.next_xid - 1;
}

void database_crash(int64_t for_ns)
{
    database_stop(for_ns);
    database.next_xid = database.last_logged_xid + 1;
    database.last_done_xid = database.last_logged_xid;
}

void database_no_log(unsigned n_others, int64_t for_ns)
{
    faults.no_log_ns = until(for_ns);
    database.next_xid += n_others;
    database.last_done_xid = database.next_xid - 1;
}

void database_slow(int64_t add_ns, int64_t for_ns)
{
    faults.slow_by_ns = add_ns;
    faults.slow_ns = until(for_ns);
}

void database_cut(unsigned host, int64_t for_ns)
{
    faults.cut_ns[host] = SH_MAX(faults.cut_ns[host], until(for_ns));
}

void database_doubt(double p, int64_t for_ns)
{
    faults.doubt = p;
    faults.doubt_ns = until(for_ns);
}

void database_time_out(double p, int64_t for_ns)
{
    faults.time_out = p;
    faults.time_out_ns = until(for_ns);
}

void database_lock_job(uint64_t which, int64_t for_ns)
{
    size_t n = 0;

    for (size_t i = 0; i < database.n_jobs; i++)
        n += !job_state_is_final(database.jobs[i].state);
    which = n ? which % n : 0;
    for (size_t i = 0; i < database.n_jobs; i++)
        if (!job_state_is_final(database.jobs[i].state) && which-- == 0)
            database.jobs[i].locked_ns = until(for_ns);
}

void database_heal(void)
{
    uint64_t start = faults.start;

    memset(&faults, 0, sizeof(faults));
    faults.start = start;
    for (size_t i = 0; i < database.n_jobs; i++)
        database.jobs[i].locked_ns = 0;
}
