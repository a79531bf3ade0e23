/* fake.h - a device whose time and failures are scripted, for tests of what sits above it.
 *
 * Memory face: a copy is done when sh_clock says so (latency + bytes / rate of its link, one for
 * each direction, as on the cpu device); there are no threads. What is due happens inside the next
 * call to the memory face, in order of time, so with sh_clock_fake() every run is the same. With
 * the real clock the event descriptor is a timer that fires when the next mark is due.
 *
 * Compute face: an operation hashes the bytes of its inputs into its outputs (an operation that
 * updates in place: into its first input), so results show whether the right bytes were there. It
 * takes 1000 ns of sh_clock. The name of a node scripts it:
 *
 *   "conv1 !ns=5000"        takes this long
 *   "conv1 !fail=DEVLOST"   fails with this code
 *   "conv1 !prepare=DEVMEM" runs, and ranges with it cannot be prepared
 */
#ifndef SH_RUNTIME_DEVICE_FAKE_FAKE_H
#define SH_RUNTIME_DEVICE_FAKE_FAKE_H

#include "runtime/device/backend.h"

extern const struct dev_ops shunt_dev_ops;

int fake__mem_open(const struct dev_mem_conf *c, struct dev_mem **out, struct sh_err *err);
void fake__mem_close(struct dev_mem *m);
int fake__mem_export(const struct dev_mem *m, int *fds, size_t *n_fds, struct sh_err *err);
int fake__mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t off, void *host,
                   size_t bytes, struct sh_err *err);
int fake__mem_move(struct dev_mem *m, uint32_t lane, size_t dst, size_t src, size_t bytes,
                   struct sh_err *err);
int fake__mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes, struct sh_err *err);
int fake__mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                     struct sh_err *err);
int fake__mem_follow(struct dev_mem *m, uint32_t lane, uint32_t after, struct sh_err *err);
int fake__mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err);
int fake__mem_event_fd(const struct dev_mem *m);
bool fake__mem_next_mark(struct dev_mem *m, uint64_t *cookie);
void fake__ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value);
uint32_t fake__ticket_value(const struct dev_mem *m, uint32_t slot);
/* Of copies from now on; all links begin with the rate of the configuration. */
void fake__link(struct dev_mem *m, uint32_t link, double gb_per_s, double latency_us);
void fake__hold(struct dev_mem *m, uint32_t lane, bool is_held); /* it stands still meanwhile */

#endif
