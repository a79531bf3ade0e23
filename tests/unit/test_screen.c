/* test_screen.c - keys of a terminal whose size changes at the worst moments. Without it: a key
 * that is typed while the window changes would be lost, or the screen would stay as it was until
 * the next key or the next look. */
/* uses: cli/text/screen.o */
/* link: -lutil -Wl,--wrap=poll -Wl,--wrap=ppoll -Wl,--wrap=read */
#include "cli/text/screen.h"
#include "tests/unit/sh_test.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

static bool before_wait, before_read; /* the size changes then */

int __real_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms);
int __real_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask);
int __wrap_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask);
ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n);

static void change(bool *at)
{
    if (*at)
        raise(SIGWINCH);
    *at = false;
}

int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
    change(&before_wait);
    return __real_poll(p, n, ms);
}

int __wrap_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
    change(&before_wait);
    return __real_ppoll(p, n, t, mask);
}

ssize_t __wrap_read(int fd, void *to, size_t n)
{
    change(&before_read);
    return __real_read(fd, to, n);
}

static void a_key_and_a_change_of_size_are_both_told(void **state)
{
    int terminal, side, saved[2] = {dup(0), dup(1)}, keys[3];
    struct timespec begin, end;

    (void)state;
    assert_int_equal(openpty(&terminal, &side, NULL, NULL, NULL), 0);
    dup2(side, 0);
    dup2(side, 1);
    keys[0] = screen_open(NULL);
    assert_int_equal(__real_poll(NULL, 0, 0), 0);
    assert_int_equal(write(terminal, "q", 1), 1);
    before_read = true;
    for (int i = 1; i < 3; i++)
        keys[i] = screen_key(5000);
    before_wait = true;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (screen_key(60000) != KEY_RESIZED)
        keys[0] = -1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    screen_close();
    dup2(saved[0], 0);
    dup2(saved[1], 1);
    assert_int_equal(keys[0], 0);
    assert_int_equal(keys[1], 'q');
    assert_int_equal(keys[2], KEY_RESIZED);
    assert_true(end.tv_sec - begin.tv_sec < 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_and_a_change_of_size_are_both_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
