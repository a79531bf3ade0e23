/* links.c - see links.h. */
#include "executor/memory/links.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"

#define LEARN_BYTES (1u << 20) /* less says little about the rate of a link */
#define LEAST_BETA_NS 1e-6
#define LEAST_PART_NS 10000.0 /* what it costs to put two lanes in order, twice */
#define LEFT_OUT_NS SH_S(1)

void links_lanes(struct dev_mem_conf *c, uint32_t n)
{
    c->n_lanes = n > 1 ? n + 2 : 2;
    for (uint32_t k = 0; k < n; k++)
        c->links[k] = (uint8_t)k;
}

static uint32_t tickets_of(const struct links *l)
{
    return l->n;
}

/* ------------------------------------------------------------------ what they cost */

/* Those that take part, the soonest first. *order: u32[n] */
static uint32_t sort_links(const struct links *l, int64_t now_ns, uint32_t *order)
{
    uint32_t n = 1;

    order[0] = 0;
    for (uint32_t k = 1; k < l->n; k++) {
        uint32_t i = n;

        if (now_ns < l->at[k].out_until_ns)
            continue;
        for (; i > 0 && l->at[order[i - 1]].alpha_ns > l->at[k].alpha_ns; i--)
            order[i] = order[i - 1];
        order[i] = k;
        n++;
    }
    return n;
}

/* By two links at once, which share a group so that they end together: of alpha the mean, by what
 * each carries, of rates the sum. */
static struct links_way join_ways(struct links_way a, const struct link *b)
{
    const double sum = a.beta_ns + b->beta_ns;

    return (struct links_way){.alpha_ns = (a.alpha_ns * b->beta_ns + b->alpha_ns * a.beta_ns) / sum,
                              .beta_ns = a.beta_ns * b->beta_ns / sum};
}

static void find_ways(struct links *l, int64_t now_ns)
{
    uint32_t order[LINKS_MAX];
    const uint32_t n = sort_links(l, now_ns, order);
    struct links_way w = {l->at[order[0]].alpha_ns, l->at[order[0]].beta_ns};

    l->ways[0] = w;
    l->n_ways = 1;
    for (uint32_t i = 1; i < n; i++) {
        w = join_ways(w, &l->at[order[i]]);
        if ((int64_t)w.alpha_ns > (int64_t)l->ways[l->n_ways - 1].alpha_ns)
            l->n_ways++;
        l->ways[l->n_ways - 1] = w;
    }
}

int links_init(struct links *l, struct dev_mem *mem, struct sh_err *err)
{
    int rc = SH_OK;

    *l = (struct links){.mem = mem, .n = dev_mem_n_links(mem)};
    if (l->n > LINKS_MAX)
        return SH_FAIL(err, SH_E_BUG, "%u links to the device are more than %u", l->n, LINKS_MAX);
    l->out_lane = l->n > 1 ? l->n + 1 : 1;
    for (uint32_t k = 0; !rc && k < l->n; k++) {
        struct link *at = &l->at[k];

        rc = dev_mem_measure(mem, k, &at->alpha_ns, &at->beta_ns, err);
        at->alpha_ns = SH_MAX(at->alpha_ns, 0.0);
        at->beta_ns = SH_MAX(at->beta_ns, LEAST_BETA_NS);
    }
    if (!rc)
        find_ways(l, 0);
    return rc;
}

const struct links_way *links_all(const struct links *l)
{
    return &l->ways[l->n_ways - 1];
}

double links_busy_until_ns(const struct links *l)
{
    double until = l->at[0].busy_until_ns;

    for (uint32_t k = 1; k < l->n; k++)
        until = SH_MAX(until, l->at[k].busy_until_ns);
    return until;
}

void links_idle_since(struct links *l, double ns)
{
    for (uint32_t k = 0; k < l->n; k++)
        l->at[k].busy_until_ns = SH_MIN(l->at[k].busy_until_ns, ns);
}

/* What was measured at the start, perhaps beside other work, would be wrong for good. One copy
 * counts as four times what was known at most, for it may have stalled, and as a quarter at least:
 * less than what its copies take to begin, by what was measured once, says only that this was
 * wrong. */
bool links_learn(struct links *l, uint32_t k, double ns, uint64_t bytes)
{
    struct link *at = &l->at[k];
    double sample;

    if (bytes < LEARN_BYTES || ns <= 0)
        return false;
    sample = SH_MAX(ns / (double)bytes, at->beta_ns / 4);
    at->beta_ns += (SH_MIN(sample, 4 * at->beta_ns) - at->beta_ns) / 8;
    at->beta_ns = SH_MAX(at->beta_ns, LEAST_BETA_NS);
    find_ways(l, sh_clock_ns());
    return true;
}

/* ------------------------------------------------------------------ dividing */

static bool may_carry(const struct links *l, uint32_t k, int64_t now_ns)
{
    return k == 0 || (now_ns >= l->at[k].out_until_ns && (!l->are_apart || l->at[k].is_apart));
}

/* When its next part begins to move. */
static double begin_of(const struct links *l, uint32_t k, int64_t now_ns)
{
    double at = SH_MAX(l->at[k].busy_until_ns, (double)now_ns);

    if (!l->are_apart)
        at = SH_MAX(at, l->at[0].busy_until_ns);
    return at + l->at[k].alpha_ns;
}

/* The links that end a group soonest are found from above: with all, the one that would begin last
 * is left out as long as its part is not worth it. */
void links_divide(const struct links *l, int64_t now_ns, uint64_t bytes, uint64_t *parts)
{
    double begin[LINKS_MAX], end;
    bool is_in[LINKS_MAX];
    uint32_t n = 0, first = 0, last;

    for (uint32_t k = 0; k < l->n; k++) {
        parts[k] = 0;
        begin[k] = begin_of(l, k, now_ns);
        is_in[k] = may_carry(l, k, now_ns);
        n += is_in[k];
    }
    do {
        double rate = 0, sum = (double)bytes;

        last = LINKS_MAX;
        for (uint32_t k = 0; k < l->n; k++) {
            if (!is_in[k])
                continue;
            rate += 1 / l->at[k].beta_ns;
            sum += begin[k] / l->at[k].beta_ns;
            if (last == LINKS_MAX || begin[k] >= begin[last])
                last = k;
        }
        end = sum / rate;
        if (n == 1 || end - begin[last] >= LEAST_PART_NS)
            break;
        is_in[last] = false;
        n--;
    } while (true);
    while (!is_in[first])
        first++;
    for (uint32_t k = first + 1; k < l->n; k++) {
        if (!is_in[k])
            continue;
        parts[k] = (uint64_t)SH_MAX((end - begin[k]) / l->at[k].beta_ns, 0.0);
        parts[k] = SH_MIN(parts[k] / DEV_ALIGN * DEV_ALIGN, bytes);
        bytes -= parts[k];
    }
    parts[first] = bytes;
}

/* ------------------------------------------------------------------ order */

static void rest_link(struct links *l, uint32_t k, const struct sh_err *why)
{
    SH_WARN("link.refused", "link=%u code=%s msg=\"%s\"", k, sh_rc_name(why->rc), why->msg);
    l->at[k].out_until_ns = sh_clock_ns() + LEFT_OUT_NS;
    find_ways(l, sh_clock_ns());
}

/* Nothing happened, and another link can do it. */
static bool is_refusal(int rc)
{
    return rc == SH_E_DEVMEM || rc == SH_E_QUEUEFULL;
}

static int part_links(struct links *l, struct sh_err *err)
{
    const int64_t now = sh_clock_ns();

    for (uint32_t k = 1; k < l->n; k++) {
        struct sh_err why = {0};
        int rc;

        if (now < l->at[k].out_until_ns)
            continue;
        rc = dev_mem_follow(l->mem, k, 0, &why);
        if (rc && !is_refusal(rc))
            return sh_err_copy(err, &why);
        if (rc) {
            rest_link(l, k, &why);
            continue;
        }
        l->at[k].busy_until_ns = SH_MAX(l->at[k].busy_until_ns, l->at[0].busy_until_ns);
        l->at[k].is_apart = l->are_apart = true;
    }
    return SH_OK;
}

int links_join(struct links *l, struct sh_err *err)
{
    int rc = SH_OK;

    if (!l->are_apart)
        return SH_OK;
    for (uint32_t k = 1; !rc && k < l->n; k++) {
        if (!l->at[k].is_apart)
            continue;
        rc = dev_mem_follow(l->mem, 0, k, err);
        l->at[k].is_apart = rc != SH_OK;
    }
    if (!rc)
        rc = dev_mem_follow(l->mem, 0, tickets_of(l), err);
    if (rc)
        return rc;
    l->at[0].busy_until_ns = links_busy_until_ns(l);
    l->are_apart = false;
    return SH_OK;
}

uint32_t links_ticket_lane(const struct links *l)
{
    return l->are_apart ? tickets_of(l) : 0;
}

/* ------------------------------------------------------------------ sending */

static void count_copy(struct link *at, size_t bytes)
{
    const double now_ns = (double)sh_clock_ns();

    at->busy_until_ns =
        SH_MAX(at->busy_until_ns, now_ns) + at->alpha_ns + at->beta_ns * (double)bytes;
    at->sent_bytes += bytes;
    at->n_sent++;
}

static int copy_by(struct links *l, uint32_t k, size_t off, const void *host, size_t bytes,
                   struct sh_err *err)
{
    /* The contract takes one pointer for both directions; host to device only reads it. */
    int rc = dev_mem_copy(l->mem, k, DEV_H2D, off, (void *)(uintptr_t)host, bytes, err);

    if (!rc)
        count_copy(&l->at[k], bytes);
    return rc;
}

int links_copy(struct links *l, size_t off, const void *host, size_t bytes, struct sh_err *err)
{
    int rc = links_join(l, err);

    return rc ? rc : copy_by(l, 0, off, host, bytes, err);
}

void links_begin(struct links *l)
{
    for (uint32_t k = 0; k < l->n; k++) {
        l->at[k].sent_bytes = 0;
        l->at[k].n_sent = 0;
    }
    if (l->n > 1)
        find_ways(l, sh_clock_ns());
}

/* *lane_out: which lane has got it. */
static int send_part(struct links *l, uint32_t k, size_t off, const void *host, size_t bytes,
                     uint32_t *lane_out, struct sh_err *err)
{
    struct sh_err why = {0};
    int rc = copy_by(l, k, off, host, bytes, &why);

    *lane_out = k;
    if (!rc)
        return SH_OK;
    if (k == 0 || !is_refusal(rc))
        return sh_err_copy(err, &why);
    rest_link(l, k, &why);
    *lane_out = 0;
    return copy_by(l, 0, off, host, bytes, err);
}

static int send_parts(struct links *l, size_t off, const char *host, const uint64_t *parts,
                      struct sh_err *err)
{
    bool carries[LINKS_MAX] = {false};
    uint64_t at = 0;
    int rc = SH_OK;

    for (uint32_t k = 0; !rc && k < l->n; k++) {
        uint32_t lane;

        if (!parts[k])
            continue;
        rc = send_part(l, k, off + at, host + at, (size_t)parts[k], &lane, err);
        carries[lane] = true;
        at += parts[k];
    }
    for (uint32_t k = 0; !rc && k < l->n; k++)
        if (carries[k])
            rc = dev_mem_follow(l->mem, tickets_of(l), k, err);
    return rc;
}

int links_send(struct links *l, size_t off, const void *host, size_t bytes, uint32_t slot,
               uint32_t value, struct sh_err *err)
{
    uint64_t parts[LINKS_MAX] = {bytes};
    int rc = SH_OK;

    if (l->n > 1)
        links_divide(l, sh_clock_ns(), bytes, parts);
    if (!l->are_apart && parts[0] < bytes) {
        rc = part_links(l, err);
        if (!rc)
            links_divide(l, sh_clock_ns(), bytes, parts);
    }
    if (!rc)
        rc = l->are_apart ? send_parts(l, off, host, parts, err)
                          : copy_by(l, 0, off, host, bytes, err);
    return rc ? rc : dev_mem_ticket(l->mem, links_ticket_lane(l), slot, value, err);
}
