/* transmit.c - see transmit.h. */
#include "executor/memory/transmit.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/trace.h"
#include "runtime/group.h"
#include "runtime/pack/layers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define ROBUST_SHARE 0.02
#define PLAN_DRIFT 0.03       /* of a link's cost, within which a grouping stays */
#define LEAST_COPY_NS 15000.0 /* what a wait for a ticket and the launch behind it cost */

struct mark {
    uint64_t cookie;
    tx_done_fn *fn; /* NULL: forgotten */
    void *arg;
};

struct watch { /* of a link, while an image has all of them to itself */
    struct tx *tx;
    uint32_t link;
    int64_t since_ns;
};

struct tx {
    struct dev_mem *mem;
    struct sh_io *io;
    const char *executor;
    tx_group_fn *group; /* NULL: tx_group() */
    const void *group_arg;
    struct links links;
    struct watch watches[LINKS_MAX];
    int64_t watched_ns; /* since when; 0: they have other work, too */
    uint64_t n_in;      /* copies to the device, divided ones as one */
    uint64_t next_cookie;
    struct mark *marks;
    size_t n_marks, cap_marks;
};

void tx_set_group(struct tx *t, tx_group_fn *fn, const void *arg)
{
    t->group = fn;
    t->group_arg = arg;
}

/* ------------------------------------------------------------------ marks */

static void on_marks(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct tx *t = arg;
    uint64_t cookie;

    (void)l, (void)fd, (void)events;
    while (dev_mem_next_mark(t->mem, &cookie)) {
        for (size_t i = 0; i < t->n_marks; i++) {
            struct mark m = t->marks[i];

            if (m.cookie != cookie)
                continue;
            t->marks[i] = t->marks[--t->n_marks];
            if (m.fn)
                m.fn(m.arg);
            break;
        }
    }
}

/* By the number of the lane. */
static int add_mark(struct tx *t, uint32_t lane, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    int rc = sh_grow(&t->marks, &t->cap_marks, t->n_marks + 1, sizeof(*t->marks), TX_MAX_MARKS,
                     "marks on the copy lanes", err);

    if (!rc)
        rc = dev_mem_mark(t->mem, lane, t->next_cookie, err);
    if (rc)
        return rc;
    t->marks[t->n_marks++] = (struct mark){.cookie = t->next_cookie++, .fn = fn, .arg = arg};
    return SH_OK;
}

/* Whatever is put on a lane is put on one that is whole: behind all that was divided before. */
static int whole_lane(struct tx *t, uint32_t lane, uint32_t *out, struct sh_err *err)
{
    *out = lane == TX_LANE_IN ? 0 : t->links.out_lane;
    return lane == TX_LANE_IN ? links_join(&t->links, err) : SH_OK;
}

int tx_mark(struct tx *t, uint32_t lane, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    uint32_t of;
    int rc = whole_lane(t, lane, &of, err);

    return rc ? rc : add_mark(t, of, fn, arg, err);
}

void tx_forget(struct tx *t, const void *arg)
{
    for (size_t i = 0; i < t->n_marks; i++)
        if (t->marks[i].arg == arg)
            t->marks[i].fn = NULL;
}

bool tx_is_busy(const struct tx *t)
{
    return t->n_marks > 0;
}

void tx_rehearse(struct tx *t)
{
    if (!tx_is_busy(t) && tx_backlog_ns(t) <= 0)
        dev_mem_rehearse(t->mem, NULL); /* what fails, fails the next copy, too */
}

static void tell_rate(const struct tx *t)
{
    const struct links_way *w = links_all(&t->links);

    sh_metric_set(M_shunt_link_bytes_per_second, SH_LABELS(t->executor), 1e9 / w->beta_ns);
}

int tx_new(struct sh_loop *loop, struct dev_mem *mem, const char *executor, struct tx **out,
           struct sh_err *err)
{
    struct tx *t = calloc(1, sizeof(*t));
    int rc;

    *out = NULL;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the transmission");
    t->mem = mem;
    t->executor = executor;
    t->next_cookie = 1;
    for (uint32_t k = 0; k < LINKS_MAX; k++)
        t->watches[k] = (struct watch){.tx = t, .link = k};
    rc = links_init(&t->links, mem, err);
    if (!rc)
        rc = sh_io_add(loop, dev_mem_event_fd(mem), SH_IO_READ, on_marks, t, &t->io, err);
    if (rc) {
        tx_free(t);
        return rc;
    }
    tell_rate(t);
    sh_metric_set(M_shunt_link_latency_seconds, SH_LABELS(executor), tx_alpha_ns(t) / 1e9);
    *out = t;
    return SH_OK;
}

void tx_free(struct tx *t)
{
    if (!t)
        return;
    sh_io_del(t->io);
    free(t->marks);
    free(t);
}

struct dev_mem *tx_mem(struct tx *t)
{
    return t->mem;
}

const struct links *tx_links(const struct tx *t)
{
    return &t->links;
}

double tx_alpha_ns(const struct tx *t)
{
    return links_all(&t->links)->alpha_ns;
}

double tx_beta_ns(const struct tx *t)
{
    return links_all(&t->links)->beta_ns;
}

double tx_lane_beta_ns(const struct tx *t)
{
    return t->links.at[0].beta_ns;
}

double tx_backlog_ns(const struct tx *t)
{
    const double now_ns = (double)sh_clock_ns();

    return SH_MAX(links_busy_until_ns(&t->links) - now_ns, 0.0);
}

/* ------------------------------------------------------------------ single operations */

static void count_link_bytes(const struct tx *t, const char *direction, enum tx_purpose why,
                             size_t bytes)
{
    static const char *const NAME[TX_N_PURPOSES] = {[TX_WEIGHTS] = "weights",
                                                    [TX_INPUTS] = "inputs",
                                                    [TX_STATE] = "state",
                                                    [TX_CHECKPOINT] = "checkpoint"};

    sh_metric_add(M_shunt_copied_bytes_total, SH_LABELS(t->executor, direction, NAME[why]),
                  (double)bytes);
}

int tx_in(struct tx *t, enum tx_purpose why, size_t off, const void *host, size_t bytes,
          struct sh_err *err)
{
    int rc = links_copy(&t->links, off, host, bytes, err);

    if (rc)
        return rc;
    count_link_bytes(t, "h2d", why, bytes);
    t->n_in++;
    t->watched_ns = 0;
    return SH_OK;
}

int tx_out(struct tx *t, enum tx_purpose why, size_t off, void *host, size_t bytes,
           struct sh_err *err)
{
    int rc = dev_mem_copy(t->mem, t->links.out_lane, DEV_D2H, off, host, bytes, err);

    if (!rc)
        count_link_bytes(t, "d2h", why, bytes);
    return rc;
}

int tx_move(struct tx *t, size_t dst, size_t src, size_t bytes, struct sh_err *err)
{
    uint32_t lane;
    int rc = whole_lane(t, TX_LANE_IN, &lane, err);

    if (!rc)
        rc = dev_mem_move(t->mem, lane, dst, src, bytes, err);
    if (!rc)
        count_link_bytes(t, "d2d", TX_WEIGHTS, bytes);
    return rc;
}

int tx_zero(struct tx *t, size_t off, size_t bytes, struct sh_err *err)
{
    uint32_t lane;
    int rc = whole_lane(t, TX_LANE_IN, &lane, err);

    return rc ? rc : dev_mem_zero(t->mem, lane, off, bytes, err);
}

int tx_ticket(struct tx *t, uint32_t lane, uint32_t slot, uint32_t value, struct sh_err *err)
{
    uint32_t of;
    int rc = whole_lane(t, lane, &of, err);

    return rc ? rc : dev_mem_ticket(t->mem, of, slot, value, err);
}

/* ------------------------------------------------------------------ grouping */

/* Many groupings are within a hair of the optimum, and the exact one computes just in time by
 * the profile: a layer that takes longer than it did then delays the end. So its groups are cut
 * further, as long as the cost of the extra copies stays within ROBUST_SHARE of the whole:
 * computing starts earlier, and there is slack. Each cut adds at most alpha to the end.
 *
 * What the optimum does not know is that a group costs the computation a wait and a launch, too:
 * one whose copy takes less than that, as that of a first small layer, takes in what follows until
 * it is worth them. */
static int refine(const struct group_plan *plan, double alpha_ns, const int64_t *copy, uint32_t n,
                  uint32_t **ends, uint32_t *n_ends, struct sh_err *err)
{
    double extra = alpha_ns > 0 ? (double)plan->finish_ns * ROBUST_SHARE / alpha_ns : n;
    double total = 0, piece, sum = 0;
    bool is_due = false; /* the optimum has a cut here, or has had one since the last */
    uint32_t g = 0;

    for (uint32_t i = 0; i < n; i++)
        total += (double)copy[i];
    piece = total / SH_MAX(extra, 1.0);
    *ends = calloc(n, sizeof(**ends));
    if (!*ends)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping of %u layers", n);
    for (uint32_t i = 0; i < n; i++) {
        const bool is_end = i + 1 == plan->ends[g];

        sum += (double)copy[i];
        g += is_end;
        is_due |= is_end;
        /* The resident head waits for nothing. An empty layer behind a cut would be a group without
         * a copy: it stays with the next. */
        if (i + 1 < n && !(is_end && sum == 0) && sum < SH_MAX(LEAST_COPY_NS, is_due ? 0 : piece))
            continue;
        (*ends)[(*n_ends)++] = i + 1;
        sum = 0;
        is_due = false;
    }
    return SH_OK;
}

/* copy: n times for each way. */
static int solve(const struct links_way *ways, uint32_t n_ways, const uint64_t *missing,
                 const double *layer_ns, uint32_t n, int64_t *copy, struct group_plan *plan,
                 struct sh_err *err)
{
    int64_t *compute = calloc(n, sizeof(*compute));
    struct group_way of[LINKS_MAX];
    int rc;

    if (!compute)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping of %u layers", n);
    for (uint32_t k = 0; k < n_ways; k++) {
        int64_t *ns = copy + (size_t)k * n;

        of[k] = (struct group_way){(int64_t)ways[k].alpha_ns, ns};
        for (uint32_t i = 0; i < n; i++) {
            ns[i] = (int64_t)((double)missing[i] * ways[k].beta_ns);
            if (missing[i] && ns[i] == 0)
                ns[i] = 1; /* not resident */
        }
    }
    for (uint32_t i = 0; i < n; i++)
        compute[i] = (int64_t)layer_ns[i];
    rc = group_solve(of, n_ways, compute, n, plan, err);
    free(compute);
    return rc;
}

int tx_group(const struct links_way *ways, uint32_t n_ways, const uint64_t *missing,
             const double *layer_ns, uint32_t n, uint32_t **ends, uint32_t *n_ends,
             struct sh_err *err)
{
    int64_t *copy = calloc((size_t)n * n_ways + 1, sizeof(*copy));
    struct group_plan plan = {0};
    int rc;

    *ends = NULL;
    *n_ends = 0;
    if (n == 0)
        rc = SH_FAIL(err, SH_E_BUG, "a model without layers has no groups");
    else if (!copy)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping of %u layers", n);
    else
        rc = solve(ways, n_ways, missing, layer_ns, n, copy, &plan, err);
    if (!rc)
        rc = refine(&plan, ways[n_ways - 1].alpha_ns, copy + (size_t)(n_ways - 1) * n, n, ends,
                    n_ends, err);
    group_plan_fini(&plan);
    free(copy);
    return rc;
}

static uint64_t layer_missing(const struct tx_image *im, uint32_t i, uint64_t resident)
{
    const uint64_t from = SH_MAX(layer_begin(im->layer_ends, i), resident);
    const uint64_t to = im->layer_ends[i];

    return to > from ? to - from : 0;
}

uint64_t tx_link_bytes(const struct tx_image *im, uint64_t device_bytes)
{
    uint64_t link = 0;

    if (!im->device_ends)
        return SH_MIN(device_bytes, im->bytes);
    for (uint32_t i = 0; i < im->n_layers && im->device_ends[i] <= device_bytes; i++)
        link = im->layer_ends[i];
    return link;
}

/* Those that operations wait for. */
static uint32_t n_needed(const struct tx_image *im)
{
    return im->n_layers - im->n_tables;
}

uint64_t tx_needed_bytes(const struct tx_image *im)
{
    return im->n_tables == 0 ? im->bytes : layer_begin(im->layer_ends, n_needed(im));
}

/* The head that has the first `link` bytes. */
static uint64_t device_bytes_of(const struct tx_image *im, uint64_t link)
{
    uint32_t i = 0;

    if (!im->device_ends || link == 0)
        return link;
    while (i + 1 < im->n_layers && im->layer_ends[i] < link)
        i++;
    return im->device_ends[i];
}

/* To unpack layer i, all of it. */
static double unpack_ns(const struct tx_image *im, uint32_t i)
{
    if (!im->device_ends)
        return 0;
    return (double)layer_bytes(im->device_ends, i) * im->unpack_ns_per_byte;
}

/* What layers take once they have arrived. *out: OWNED, free(); NULL: no memory. */
static double *with_unpacking(const struct tx_image *im, const uint64_t *missing,
                              const double *layer_ns)
{
    double *ns = calloc((size_t)im->n_layers + 1, sizeof(*ns));

    for (uint32_t i = 0; ns && i < im->n_layers; i++)
        ns[i] = layer_ns[i] + (missing[i] ? unpack_ns(im, i) : 0);
    return ns;
}

uint64_t tx_keep_bytes(const struct tx *t, const struct tx_image *im, const double *layer_ns)
{
    double computed = 0, keep = 0;

    /* Without delay, all bytes up to layer j that are not kept arrive while layers < j compute. */
    for (uint32_t j = 0; j < n_needed(im); j++) {
        double hidden = 0;

        for (uint32_t k = 0; k < t->links.n_ways; k++) {
            const struct links_way *w = &t->links.ways[k];

            hidden = SH_MAX(hidden, SH_MAX(computed - w->alpha_ns, 0.0) / w->beta_ns);
        }
        keep = SH_MAX(keep, (double)im->layer_ends[j] - hidden);
        computed += layer_ns ? layer_ns[j] : 0;
    }
    return device_bytes_of(im, SH_MIN((uint64_t)SH_MAX(keep, 0.0), im->bytes));
}

double tx_tail_ns(const struct tx *t, const struct tx_image *im, const double *layer_ns)
{
    uint64_t *missing = calloc((size_t)im->n_layers + 1, sizeof(*missing));
    int64_t *copy = calloc((size_t)im->n_layers * t->links.n_ways + 1, sizeof(*copy));
    struct group_plan plan = {0};
    double tail = 0, *ns = NULL;

    for (uint32_t i = 0; i < im->n_layers; i++) {
        tail += layer_ns[i] + unpack_ns(im, i); /* all of it, if the grouping cannot be found */
        if (missing)
            missing[i] = layer_missing(im, i, 0);
    }
    if (missing)
        ns = with_unpacking(im, missing, layer_ns);
    if (ns && copy && n_needed(im) &&
        !solve(t->links.ways, t->links.n_ways, missing, ns, n_needed(im), copy, &plan, NULL))
        tail = SH_MIN(tail, (double)plan.finish_ns - tx_beta_ns(t) * (double)tx_needed_bytes(im));
    group_plan_fini(&plan);
    free(ns);
    free(copy);
    free(missing);
    return SH_MAX(tail, 0.0);
}

/* ------------------------------------------------------------------ images */

bool tx_groups_wait(const struct sh_blob *groups)
{
    const struct msg_group *g = groups->data;

    for (size_t i = 0; i < groups->len / sizeof(*g); i++)
        if (g[i].ticket_slot != TX_NO_TICKET)
            return true;
    return false;
}

bool tx_image_busy(const struct tx_image *im)
{
    return im->n_groups > 0;
}

/* A copy that had the link to itself tells how fast it is by now. */
static void learn_link(struct tx *t, uint32_t link, int64_t took_ns, uint64_t bytes,
                       uint32_t n_copies)
{
    const double ns = (double)took_ns - t->links.at[link].alpha_ns * n_copies;

    if (links_learn(&t->links, link, ns, bytes))
        tell_rate(t);
}

static void on_link_done(void *arg)
{
    const struct watch *w = arg;
    const struct link *at = &w->tx->links.at[w->link];

    if (w->since_ns && w->since_ns == w->tx->watched_ns)
        learn_link(w->tx, w->link, sh_clock_ns() - w->since_ns, at->sent_bytes, at->n_sent);
}

/* When an image has been divided, each link tells when it has carried its share. */
static void watch_links(struct tx *t)
{
    for (uint32_t k = 0; t->links.are_apart && k < t->links.n; k++) {
        t->watches[k].since_ns = t->watched_ns;
        if (t->links.at[k].n_sent > 0)
            add_mark(t, k, on_link_done, &t->watches[k], NULL);
    }
}

void tx_image_arrived(struct tx *t, struct tx_image *im)
{
    im->arrived_ns = sh_clock_ns();
    if (im->is_alone && im->n_groups > 0 && t->links.n == 1)
        learn_link(t, 0, im->arrived_ns - im->sent_ns, im->copied_bytes, im->n_groups);
    if (t->links.n > 1)
        tell_rate(t); /* some may have been left out, or take part again */
    SH_TRACE(.name = "weights", .track = "copies in", .begin_ns = im->sent_ns,
             .end_ns = im->arrived_ns, .bytes = im->copied_bytes);
    if (tx_load_is_last(t, im))
        links_idle_since(&t->links, (double)im->arrived_ns);
    im->n_groups = 0;
}

void tx_image_force(struct tx *t, struct tx_image *im)
{
    dev_ticket_force(t->mem, im->slot, im->value);
}

void tx_image_replan(struct tx_image *im)
{
    im->plan.n_groups = 0;
}

void tx_image_fini(struct tx_image *im)
{
    free(im->groups);
    im->groups = NULL;
    im->n_groups = 0;
    tx_image_replan(im);
}

/* Only at debug level: the marks of a run without them cost nothing. */
static void log_arrival(void *arg)
{
    struct tx_image *im = arg;
    const int64_t now = sh_clock_ns();

    SH_DEBUG("group.arrived", "image=%u group=%u ns=%" PRId64, im->slot - TX_SLOT_IMAGE,
             im->n_logged++, sh_clock_ns());
    SH_TRACE(.name = "group has arrived", .track = "copies in", .begin_ns = now, .end_ns = now);
}

/* The next group: its missing bytes (*n, 0 if all are there) in one copy to each link that takes
 * part, then its ticket. */
static int send_group(struct tx *t, struct tx_image *im, uint64_t *n, struct sh_err *err)
{
    const struct msg_group *g = &im->groups[im->n_sent++];
    uint64_t from = im->sent_bytes;
    int rc;

    im->sent_bytes = SH_MAX(from, im->layer_ends[g->end_layer - 1]);
    *n = im->sent_bytes - from;
    if (*n == 0) {
        im->n_logged++;
        return SH_OK;
    }
    rc = links_send(&t->links, im->off + im->shift + from, im->host + from, *n, g->ticket_slot,
                    g->ticket_value, err);
    if (!rc) {
        count_link_bytes(t, "h2d", TX_WEIGHTS, *n);
        t->n_in++;
    }
    if (!rc && (sh_log_get_level() >= SH_LOG_DEBUG || sh_trace_is_detailed()))
        rc = add_mark(t, links_ticket_lane(&t->links), log_arrival, im, err);
    sh_metric_add(M_shunt_switch_groups_total, SH_LABELS(t->executor), 1);
    return rc;
}

/* What a byte takes until it is on the device: copies go on while others are read. */
static void ways_of(const struct tx *t, const struct tx_image *im, struct links_way *ways)
{
    for (uint32_t k = 0; k < t->links.n_ways; k++) {
        ways[k] = t->links.ways[k];
        if (im->lacks)
            ways[k].beta_ns = SH_MAX(ways[k].beta_ns, im->lacks_ns_per_byte);
    }
}

static bool is_near(double now, double then)
{
    return fabs(now - then) <= PLAN_DRIFT * then;
}

/* Were the groups that it has found for the same load? The link is measured by each copy and is
 * never quite the same; a worker that gets the same groups again has launches prepared for them. */
static bool is_planned(const struct tx *t, const struct tx_image *im, const struct tx_plan *p)
{
    const struct tx_plan *has = &im->plan;

    if (has->n_groups == 0 || t->group || im->lacks || has->n_ways != p->n_ways)
        return false;
    for (uint32_t k = 0; k < p->n_ways; k++)
        if (!is_near(p->ways[k].alpha_ns, has->ways[k].alpha_ns) ||
            !is_near(p->ways[k].beta_ns, has->ways[k].beta_ns))
            return false;
    return has->n_layers == p->n_layers && has->with_tables == p->with_tables &&
           has->bytes == p->bytes && has->resident == p->resident &&
           has->layer_ends == p->layer_ends && has->layer_ns == p->layer_ns &&
           has->unpack_ns_per_byte == p->unpack_ns_per_byte;
}

static int find_groups(struct tx *t, struct tx_image *im, const struct tx_plan *p,
                       const double *layer_ns, struct sh_err *err)
{
    const uint32_t needed = n_needed(im), more = p->with_tables ? im->n_tables : 0;
    uint64_t *missing = calloc((size_t)im->n_layers + 1, sizeof(*missing));
    double *ns = NULL;
    uint32_t *ends = NULL, n = 0;
    int rc;

    for (uint32_t i = 0; missing && i < im->n_layers; i++)
        missing[i] = layer_missing(im, i, p->resident);
    if (missing)
        ns = with_unpacking(im, missing, layer_ns);
    if (!ns)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping");
    else if (t->group)
        rc = t->group(t->group_arg, missing, needed, &ends, &n, err);
    else
        rc = tx_group(p->ways, p->n_ways, missing, ns, needed, &ends, &n, err);
    free(ns);
    free(missing);
    if (rc)
        return rc;
    free(im->groups);
    im->groups = calloc((size_t)n + more + 1, sizeof(*im->groups));
    if (!im->groups)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %u groups", n + more);
    for (uint32_t i = 0; !rc && i < n + more; i++)
        im->groups[i].end_layer = i < n ? ends[i] : needed + i - n + 1;
    im->n_groups = rc ? 0 : n + more;
    free(ends);
    return rc;
}

/* ways: what a byte takes; t->links.n_ways. */
static int plan_groups(struct tx *t, struct tx_image *im, const struct tx_place *place,
                       uint64_t resident, const struct links_way *ways, const double *layer_ns,
                       struct sh_err *err)
{
    struct tx_plan p = {.n_layers = im->n_layers,
                        .with_tables = place->with_tables,
                        .bytes = im->bytes,
                        .resident = resident,
                        .layer_ends = im->layer_ends,
                        .layer_ns = layer_ns,
                        .unpack_ns_per_byte = im->unpack_ns_per_byte,
                        .n_ways = t->links.n_ways};
    int rc;

    memcpy(p.ways, ways, p.n_ways * sizeof(*ways));
    if (is_planned(t, im, &p)) {
        im->n_groups = im->plan.n_groups;
        return SH_OK;
    }
    tx_image_replan(im);
    rc = find_groups(t, im, &p, layer_ns, err);
    if (rc)
        return rc;
    p.n_groups = t->group || im->lacks ? 0 : im->n_groups; /* else they say little of a next time */
    im->plan = p;
    return SH_OK;
}

/* What each group has to wait for: its own copy, or what lies before the first of them, which is
 * the move of the head if there was one. */
static void number_groups(struct tx_image *im, uint64_t resident, bool moved,
                          const struct links_way *ways, uint32_t n_ways)
{
    struct msg_group head = {.ticket_slot = TX_NO_TICKET};
    uint64_t at = resident;

    if (moved) {
        head.ticket_slot = im->slot;
        head.ticket_value = ++im->value;
    }
    im->predicted_ns = 0;
    for (uint32_t i = 0; i < im->n_groups; i++) {
        struct msg_group *g = &im->groups[i];
        uint64_t end = im->layer_ends[g->end_layer - 1];

        g->ticket_slot = head.ticket_slot;
        g->ticket_value = head.ticket_value;
        if (end <= at)
            continue;
        g->ticket_slot = im->slot;
        g->ticket_value = ++im->value;
        im->predicted_ns += (int64_t)links_ns(ways, n_ways, end - at);
        at = end;
    }
}

bool tx_load_waits(const struct tx_image *im)
{
    return im->n_sent < im->n_groups;
}

static bool next_is_there(const struct tx_image *im)
{
    return tx_load_waits(im) &&
           im->layer_ends[im->groups[im->n_sent].end_layer - 1] <= im->bytes - im->lacks;
}

int tx_load_begin(struct tx *t, struct tx_image *im, const struct tx_place *place,
                  const double *layer_ns, struct sh_err *err)
{
    const uint64_t resident = tx_link_bytes(im, place->resident);
    uint32_t head_value = im->value + 1;
    struct links_way ways[LINKS_MAX];
    uint64_t n = 0;
    int rc;

    im->off = place->off;
    im->sent_bytes = resident;
    im->sent_ns = sh_clock_ns();
    im->is_alone = !place->moved && tx_backlog_ns(t) <= 0 && im->lacks == 0;
    t->watched_ns = im->is_alone ? im->sent_ns : 0;
    links_begin(&t->links);
    im->copied_bytes = (place->with_tables ? im->bytes : tx_needed_bytes(im)) - resident;
    im->n_logged = im->n_sent = 0;
    ways_of(t, im, ways);
    rc = plan_groups(t, im, place, resident, ways, layer_ns, err);
    if (!rc)
        number_groups(im, resident, place->moved, ways, t->links.n_ways);
    if (!rc && place->moved)
        rc = tx_ticket(t, TX_LANE_IN, im->slot, head_value, err);
    while (!rc && n == 0 && next_is_there(im))
        rc = send_group(t, im, &n, err);
    if (rc)
        im->n_groups = 0;
    return rc;
}

/* What is on its way now is the last that was sent of it. */
static void note_sent(const struct tx *t, struct tx_image *im)
{
    im->expected_ns = (int64_t)links_busy_until_ns(&t->links);
    if (tx_load_waits(im))
        im->expected_ns = SH_MAX(im->expected_ns, im->sent_ns + im->predicted_ns);
    im->n_in = t->n_in;
}

int tx_load_next(struct tx *t, struct tx_image *im, struct sh_err *err)
{
    uint64_t n = 0;
    int rc = SH_OK;

    while (!rc && n == 0 && next_is_there(im))
        rc = send_group(t, im, &n, err);
    im->is_alone = false; /* there are pauses in it */
    t->watched_ns = 0;
    if (rc)
        im->n_groups = 0;
    return rc;
}

int tx_load_mark(struct tx *t, struct tx_image *im, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    int rc;

    note_sent(t, im);
    rc = tx_mark(t, TX_LANE_IN, fn, arg, err);
    if (rc)
        im->n_groups = 0;
    return rc;
}

bool tx_load_is_last(const struct tx *t, const struct tx_image *im)
{
    return im->n_in == t->n_in;
}

int tx_load_rest(struct tx *t, struct tx_image *im, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    uint64_t n;
    int rc = SH_OK;

    while (!rc && next_is_there(im))
        rc = send_group(t, im, &n, err);
    note_sent(t, im);
    if (!rc && !tx_load_waits(im)) {
        if (im->is_alone)
            watch_links(t);
        rc = tx_mark(t, TX_LANE_IN, fn, arg, err);
    }
    if (rc)
        im->n_groups = 0;
    return rc;
}
