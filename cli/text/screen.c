/* screen.c - see screen.h. The sequences are those of ECMA-48 and xterm, which every terminal of
 * today understands. */
#include "cli/text/screen.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define MAX_FRAME (4u << 20)
#define ESCAPE_MS 30 /* a key's bytes come together; a lone ESC is the key of that name */

/* The alternate screen, no cursor; and back. */
static const char ENTER[] = "\033[?1049h\033[?25l";
static const char LEAVE[] = "\033[0m\033[?25h\033[?1049l";
static const char *const LOOKS[] = {
    [LOOK_PLAIN] = "", [LOOK_BOLD] = "\033[1m", [LOOK_REVERSE] = "\033[7m", [LOOK_DIM] = "\033[2m"};
static const int ENDS[] = {SIGINT, SIGTERM, SIGHUP}, TURNS[] = {SIGWINCH, SIGTSTP};

static struct {
    struct termios was, raw;
    volatile sig_atomic_t is_open, is_resized;
    sigset_t mask; /* while a key is waited for; else a change of size waits until then */
    struct sh_buf frame;
    size_t rows, cols, n_lines;
    bool is_short; /* the frame is not whole */
} screen;

/* From handlers of signals too: tcsetattr() and write() may be called there. */
static void screen_take(void)
{
    tcsetattr(STDIN_FILENO, TCSANOW, &screen.raw);
    (void)!write(STDOUT_FILENO, ENTER, sizeof(ENTER) - 1);
}

static void screen_give_back(void)
{
    (void)!write(STDOUT_FILENO, LEAVE, sizeof(LEAVE) - 1);
    tcsetattr(STDIN_FILENO, TCSANOW, &screen.was);
}

static void on_end_signal(int number)
{
    if (screen.is_open)
        screen_give_back();
    signal(number, SIG_DFL);
    raise(number);
}

static void on_turn_signal(int number)
{
    const int saved = errno;

    screen.is_resized = 1;
    if (number == SIGTSTP && screen.is_open) {
        screen_give_back();
        raise(SIGSTOP);
        screen_take();
    }
    errno = saved;
}

static void screen_handle(void (*on_end)(int), void (*on_turn)(int))
{
    for (size_t i = 0; i < SH_ARRAY_LEN(ENDS); i++)
        sigaction(ENDS[i], &(struct sigaction){.sa_handler = on_end}, NULL);
    for (size_t i = 0; i < SH_ARRAY_LEN(TURNS); i++)
        sigaction(TURNS[i], &(struct sigaction){.sa_handler = on_turn, .sa_flags = SA_RESTART},
                  NULL);
}

int screen_open(struct sh_err *err)
{
    sigset_t turns;

    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &screen.was) != 0)
        return SH_FAIL(err, SH_E_INVALID, "standard input and output are no terminal");
    screen.raw = screen.was;
    screen.raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    screen.raw.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
    screen.raw.c_cc[VMIN] = 0;
    screen.raw.c_cc[VTIME] = 0;
    sh_buf_init(&screen.frame, MAX_FRAME);
    fflush(stdout);
    sigemptyset(&turns);
    sigaddset(&turns, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &turns, &screen.mask);
    screen_handle(on_end_signal, on_turn_signal);
    screen.is_open = 1;
    screen_take();
    return SH_OK;
}

void screen_close(void)
{
    if (!screen.is_open)
        return;
    screen_give_back();
    screen.is_open = 0;
    screen_handle(SIG_DFL, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &screen.mask, NULL);
    sh_buf_fini(&screen.frame);
}

void screen_size(size_t *rows, size_t *cols)
{
    struct winsize w;
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0;

    *rows = SH_MAX(is_known ? w.ws_row : 24u, 4u);
    *cols = SH_MAX(is_known ? w.ws_col : 80u, 20u);
}

/* ---------------------------------------------------------------- frames */

static void screen_put(const char *text, size_t n)
{
    screen.is_short |= sh_buf_append(&screen.frame, text, n, NULL) != SH_OK;
}

void screen_begin(void)
{
    sh_buf_reset(&screen.frame);
    screen.n_lines = 0;
    screen.is_short = false;
    screen_size(&screen.rows, &screen.cols);
    screen_put("\033[H", 3);
}

/* Bytes of the text's first n characters. */
static size_t first_bytes(const char *text, size_t n)
{
    size_t i = 0, seen = 0;

    for (; text[i]; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80 && seen++ == n)
            break;
    return i;
}

void screen_line(enum screen_look look, const char *text)
{
    if (screen.n_lines == screen.rows)
        return;
    if (screen.n_lines++ > 0)
        screen_put("\r\n", 2);
    screen_put(LOOKS[look], strlen(LOOKS[look]));
    screen_put(text, first_bytes(text, screen.cols));
    /* In a reversed line the rest of it, too. */
    screen_put("\033[K\033[0m", 7);
}

int screen_end(struct sh_err *err)
{
    screen_put("\033[J", 3);
    if (screen.is_short)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a frame of the screen");
    if (!sh_write_all(STDOUT_FILENO, screen.frame.data, screen.frame.len))
        return SH_FAIL(err, SH_E_IO, "could not write to the terminal");
    return SH_OK;
}

/* ---------------------------------------------------------------- keys */

/* -1: none in time; -2: the end of the input. */
static int next_byte(int64_t ms)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    const struct timespec t = {ms / 1000, SH_MS(ms % 1000)};
    unsigned char byte;

    if (ppoll(&p, 1, &t, &screen.mask) <= 0)
        return -1;
    return read(STDIN_FILENO, &byte, 1) == 1 ? byte : -2;
}

/* What follows ESC [ or ESC O: parameters, then a letter or ~. */
static int escape_key(void)
{
    static const struct {
        char last;
        int number, key;
    } KEYS[] = {{'A', 0, KEY_UP},       {'B', 0, KEY_DOWN},     {'C', 0, KEY_RIGHT},
                {'D', 0, KEY_LEFT},     {'H', 0, KEY_HOME},     {'F', 0, KEY_LAST},
                {'Z', 0, KEY_BACK_TAB}, {'~', 1, KEY_HOME},     {'~', 4, KEY_LAST},
                {'~', 5, KEY_PAGE_UP},  {'~', 6, KEY_PAGE_DOWN}};
    int number = 0, byte = next_byte(ESCAPE_MS);

    while (byte >= 0x20 && byte < 0x40) {
        if (byte >= '0' && byte <= '9' && number < 100)
            number = number * 10 + byte - '0';
        byte = next_byte(ESCAPE_MS);
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(KEYS); i++)
        if (KEYS[i].last == byte && (byte != '~' || KEYS[i].number == number))
            return KEYS[i].key;
    return KEY_NONE;
}

int screen_key(int64_t ms)
{
    int byte = screen.is_resized ? -1 : next_byte(ms);

    if (byte == -1 && screen.is_resized) {
        screen.is_resized = 0;
        return KEY_RESIZED;
    }
    if (byte == -2)
        return KEY_END;
    if (byte < 0)
        return KEY_NONE;
    if (byte == 8)
        return KEY_ERASE;
    if (byte == '\n')
        return KEY_ENTER;
    if (byte != KEY_ESCAPE)
        return byte;
    byte = next_byte(ESCAPE_MS);
    return byte == '[' || byte == 'O' ? escape_key() : byte == -1 ? KEY_ESCAPE : KEY_NONE;
}
