/* lane.c - marks and tickets; linked into the back ends that have lanes of their own. */
#include "runtime/device/lane.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

int dev_marks_init(struct dev_marks *m, struct sh_err *err)
{
    *m = (struct dev_marks){.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pthread_mutex_init(&m->lock, NULL);
    if (m->event_fd >= 0)
        m->ring = calloc(DEV_MAX_MARKS, sizeof(*m->ring));
    return m->ring
               ? SH_OK
               : SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not create the queue of finished copies");
}

void dev_marks_fini(struct dev_marks *m)
{
    if (m->event_fd >= 0)
        close(m->event_fd);
    pthread_mutex_destroy(&m->lock);
    free(m->ring);
}

int dev_marks_promise(struct dev_marks *m, struct sh_err *err)
{
    bool fits;

    pthread_mutex_lock(&m->lock);
    fits = m->n_promised < DEV_MAX_MARKS;
    m->n_promised += fits;
    pthread_mutex_unlock(&m->lock);
    return fits ? SH_OK
                : SH_FAIL(err, SH_E_QUEUEFULL, "%u marks are out and not fetched", DEV_MAX_MARKS);
}

void dev_marks_withdraw(struct dev_marks *m)
{
    pthread_mutex_lock(&m->lock);
    m->n_promised--;
    pthread_mutex_unlock(&m->lock);
}

void dev_marks_reach(struct dev_marks *m, uint64_t cookie)
{
    pthread_mutex_lock(&m->lock);
    m->ring[(m->head + m->n) % DEV_MAX_MARKS] = cookie;
    m->n++;
    if (m->n == 1)
        eventfd_write(m->event_fd, 1); /* its count is 0 here, so this cannot fail */
    pthread_mutex_unlock(&m->lock);
}

bool dev_marks_next(struct dev_marks *m, uint64_t *cookie)
{
    eventfd_t n;
    bool found;

    pthread_mutex_lock(&m->lock);
    found = m->n > 0;
    if (found) {
        *cookie = m->ring[m->head];
        m->head = (m->head + 1) % DEV_MAX_MARKS;
        m->n--;
        m->n_promised--;
        if (m->n == 0)
            eventfd_read(m->event_fd, &n);
    }
    pthread_mutex_unlock(&m->lock);
    return found;
}

bool dev_ticket_raise(uint32_t *word, uint32_t value)
{
    uint32_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

    while ((int32_t)(value - old) > 0)
        if (__atomic_compare_exchange_n(word, &old, value, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
            return true;
    return false;
}
