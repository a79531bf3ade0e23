/* pg_place.c - the folder of the private cluster: where it is, and to whom it belongs.
 *
 * A copied or restored state folder may come without its cluster (if that lies elsewhere), with a
 * link to the cluster of the original, or with one that was copied while PostgreSQL wrote it. None
 * of these is used, and none is replaced by a new and empty one: that would look like a system that
 * has lost everything.
 */
#include "cli/files/file.h"
#include "cli/local/claim.h"
#include "cli/local/pg_int.h"
#include "common/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LOCK_SUFFIX ".lock" /* PostgreSQL makes a file of this name beside the socket */
#define WAYS                                                                                      \
    "restore a backup into a new folder (shunt restore FILE --state-dir NEW), or remove what is " \
    "left and begin anew (shunt down --purge)"

struct place {
    const struct state *s;
    char *link, *in_aux; /* OWNED: <state>/pg, <aux>/pg */
    char to[256];        /* where the link leads; "" if it is none */
    const char *dir;     /* the cluster's folder */
};

static bool fits_socket(const char *dir)
{
    return strlen(dir) + sizeof("/" SOCKET_NAME LOCK_SUFFIX) <=
           sizeof(((struct sockaddr_un *)NULL)->sun_path);
}

static int make_cluster_dir(const struct state *s, const struct owner *o, const char *link,
                            const char *in_aux, struct sh_err *err)
{
    int rc;

    if (fits_socket(link) && pg__reaches(o, s->dir))
        return file_make_dir(link, 0700, err);
    rc = state_make_aux(s, err);
    if (!rc)
        rc = file_make_dir(in_aux, 0700, err);
    if (!rc && symlink(in_aux, link) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the link \"%s\": %m", link);
    return rc;
}

/* Only a real folder that is ours or PostgreSQL's already is given to PostgreSQL's user. */
static int hand_dir_over(const struct owner *o, const char *dir, struct sh_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = SH_OK;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open the folder \"%s\": %m", dir);
    else if ((st.st_uid != geteuid() && st.st_uid != o->uid) || (st.st_mode & 022))
        rc =
            SH_FAIL(err, SH_E_CONFLICT, "the folder \"%s\" belongs to, or is open to, others", dir);
    else if (o->is_other && fchown(fd, o->uid, o->gid) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not prepare the folder \"%s\": %m", dir);
    if (fd >= 0)
        close(fd);
    return rc;
}

static bool has_cluster_file(const char *dir, const char *below)
{
    char *path = NULL;
    bool has = sh_asprintf(NULL, &path, "%s/%s", dir, below) == SH_OK && access(path, F_OK) == 0;

    free(path);
    return has;
}

/* A link that was made for another name of the folder, or in the folder that this one is a copy
 * of. */
static int refuse_link(const struct place *p, struct sh_err *err)
{
    struct claim c = {.inode = 0};

    claim_read(p->to, &c, NULL);
    if (claim_is_ours(p->s, &c))
        return SH_FAIL(
            err, SH_E_CONFLICT,
            "this folder was \"%s\" when its database was made, and PostgreSQL reaches it "
            "only under that name: move the folder back (`shunt backup` and `shunt restore` "
            "move a system), or `shunt down --purge` removes both",
            c.path);
    return SH_FAIL(
        err, SH_E_CONFLICT,
        "\"%s\" leads to the database of another state folder%s%s (%s): this one is a copy "
        "of it. `shunt backup FILE --state-dir` with that folder takes a whole one; or "
        "`shunt down --purge` removes the copy",
        p->link, c.path[0] ? ", " : "", c.path, p->to);
}

/* Is the cluster that is there this folder's, and whole? */
static int check_claim(const struct place *p, struct sh_err *err)
{
    struct claim c;

    if (claim_read(p->dir, &c, NULL) != SH_OK)
        return SH_OK; /* of an earlier release */
    if (strcmp(c.id, p->s->id) != 0)
        return SH_FAIL(err, SH_E_CONFLICT,
                       "the database in %s is of another system (made for \"%s\"), not of this "
                       "folder: " WAYS,
                       p->dir, c.path);
    if (!claim_is_same_folder(p->s, &c) && !p->to[0] &&
        has_cluster_file(p->dir, "data/postmaster.pid"))
        return SH_FAIL(err, SH_E_CONFLICT,
                       "\"%s\" was copied from \"%s\" while its database ran: such a copy is not "
                       "whole. `shunt backup` takes one that is; to use it: " WAYS,
                       p->s->dir, c.path);
    return SH_OK;
}

static int place_find(struct place *p, const struct owner *o, bool is_fresh, struct sh_err *err)
{
    const bool had = !is_fresh && state_had_system(p->s);
    int rc = SH_OK;

    if (readlink(p->link, p->to, sizeof(p->to) - 1) > 0 && access(p->link, F_OK) != 0)
        return SH_FAIL(err, SH_E_CONFLICT,
                       "the database of \"%s\" was in %s and is not there any more (the folder was "
                       "copied or moved without it, or it was removed): " WAYS,
                       p->s->dir, p->to);
    if (access(p->link, F_OK) != 0 && !had) {
        rc = make_cluster_dir(p->s, o, p->link, p->in_aux, err);
        memset(p->to, 0, sizeof(p->to));
        if (!rc && readlink(p->link, p->to, sizeof(p->to) - 1) < 0)
            p->to[0] = '\0';
    }
    if (rc)
        return rc;
    p->dir = p->to[0] ? p->in_aux : p->link;
    if (p->to[0] && strcmp(p->to, p->in_aux) != 0)
        return refuse_link(p, err);
    if (p->to[0])
        rc = state_check_aux(p->s, err);
    if (!rc && had && !has_cluster_file(p->dir, "data/PG_VERSION"))
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "there was a system in \"%s\", and its database is not there: if it is "
                     "elsewhere give --db-url or DATABASE_URL; else " WAYS,
                     p->s->dir);
    if (!rc && (!fits_socket(p->dir) || !pg__reaches(o, p->to[0] ? p->s->aux : p->s->dir)))
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "PostgreSQL cannot use \"%s\" where the state folder is now; move it back, or "
                     "`shunt backup` there and `shunt restore` here",
                     p->dir);
    return rc;
}

int pg__place(const struct state *s, const struct owner *o, bool is_fresh, char **out,
              struct sh_err *err)
{
    struct place p = {.s = s};
    int rc = state_path(s, "pg", &p.link, err);

    *out = NULL;
    if (!rc)
        rc = sh_asprintf(err, &p.in_aux, "%s/pg", s->aux);
    if (!rc)
        rc = place_find(&p, o, is_fresh, err);
    if (!rc && has_cluster_file(p.dir, "data/PG_VERSION"))
        rc = check_claim(&p, err);
    if (!rc)
        rc = hand_dir_over(o, p.dir, err);
    if (!rc)
        rc = claim_write(s, p.dir, err);
    if (!rc)
        rc = sh_strdup(p.dir, out, err);
    free(p.link);
    free(p.in_aux);
    return rc;
}
