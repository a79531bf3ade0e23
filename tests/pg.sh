#!/usr/bin/env bash
# pg.sh - a throw-away PostgreSQL: own cluster in a temporary folder, Unix socket only, no fsync.
#
#   tests/pg.sh run CMD ARGS...   starts it, exports DATABASE_URL, runs CMD, stops and removes it
#   . tests/pg.sh; pg_start; ...; pg_stop        the same from another script (sets DATABASE_URL)
#
# PostgreSQL refuses to run as root: then it runs as "postgres", or "nobody" where there is no such
# user. SHUNT_PG_BIN names the folder of initdb and postgres if they are in an unusual place.

# Prints the folder of the server's programs, the newest version first.
pg_bin() {
    local dir
    for dir in "${SHUNT_PG_BIN:-}" $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
        if [ -n "$dir" ] && [ -x "$dir/initdb" ]; then
            printf '%s\n' "$dir"
            return 0
        fi
    done
    dir=$(command -v initdb) && dirname "$(readlink -f "$dir")"
}

# Runs a command as the user that may run PostgreSQL, from a folder which that user can enter.
pg_as_user() {
    if [ "$(id -u)" -ne 0 ]; then
        "$@"
    elif id postgres >/dev/null 2>&1; then
        setpriv --reuid=postgres --regid="$(id -g postgres)" --clear-groups -- "$@"
    else
        setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups -- "$@"
    fi
}

# From here on to pg_copies_end initdb, in the folder SHUNT_PG_BIN, makes one cluster of a kind and
# copies it for all who ask for more. Where there is no server nothing is done.
pg_copies_begin() {
    PG_COPIES=''
    local real
    real=$(pg_bin) || return 0
    PG_COPIES=$(mktemp -d "${TMPDIR:-/tmp}/shunt-pg-bin.XXXXXX") || return 1
    chmod 755 "$PG_COPIES" && mkdir "$PG_COPIES/made" && ln -s "$real"/* "$PG_COPIES/" &&
        ln -s "$real" "$PG_COPIES/real" && rm "$PG_COPIES/initdb" &&
        cp "$(dirname "${BASH_SOURCE[0]}")/pg_initdb.sh" "$PG_COPIES/initdb" || return 1
    [ "$(id -u)" -ne 0 ] || chown "$(pg_as_user id -u)" "$PG_COPIES/made" || return 1
    export SHUNT_PG_BIN=$PG_COPIES
}

pg_copies_end() {
    [ -z "${PG_COPIES:-}" ] || rm -rf "$PG_COPIES"
}

# Sets PG_DIR and exports DATABASE_URL. Returns 1 with a reason on stderr.
pg_start() {
    PG_DIR=''
    PG_BIN=$(pg_bin) || {
        echo "pg.sh: no PostgreSQL server found: install the package postgresql" >&2
        return 1
    }
    # Short: the path of a Unix socket has at most 107 bytes.
    PG_DIR=$(mktemp -d "${TMPDIR:-/tmp}/shunt-pg.XXXXXX") || return 1
    if [ "$(id -u)" -eq 0 ]; then
        chown "$(pg_as_user id -u)" "$PG_DIR" || return 1
    fi
    chmod 755 "$PG_DIR"
    if ! (
        cd / || exit 1
        pg_as_user "$PG_BIN/initdb" -D "$PG_DIR/data" -U shunt -A trust -E UTF8 --locale=C.UTF-8 \
            --no-sync >"$PG_DIR.log" 2>&1
        pg_as_user "$PG_BIN/pg_ctl" -D "$PG_DIR/data" -l "$PG_DIR/log" -w -t 60 -s \
            -o "-c listen_addresses='' -c unix_socket_directories='$PG_DIR' -c fsync=off \
                -c synchronous_commit=off -c full_page_writes=off -c max_connections=100 \
                -c shared_buffers=32MB -c deadlock_timeout=100ms" start >>"$PG_DIR.log" 2>&1
    ); then
        echo "pg.sh: PostgreSQL did not start:" >&2
        cat "$PG_DIR.log" "$PG_DIR/log" >&2 2>/dev/null
        pg_stop
        return 1
    fi
    rm -f "$PG_DIR.log"
    # For tests that stop and start the server.
    export SHUNT_PG_DATA="$PG_DIR/data" SHUNT_PG_BIN="$PG_BIN"
    # Debian's psql in /usr/bin is a script that looks for the program, for longer than that runs.
    export PATH="$PG_BIN:$PATH"
    export DATABASE_URL="postgresql://shunt@/postgres?host=$PG_DIR"
}

pg_stop() {
    [ -n "${PG_DIR:-}" ] || return 0
    if [ -f "$PG_DIR/data/postmaster.pid" ]; then
        (cd / && pg_as_user "$PG_BIN/pg_ctl" -D "$PG_DIR/data" -m immediate -w -t 20 -s stop) \
            >/dev/null 2>&1
    fi
    rm -rf "$PG_DIR" "$PG_DIR.log"
    PG_DIR=''
}

pg_main() {
    set -uo pipefail
    # shellcheck source=tests/tmp.sh
    . "$(dirname "${BASH_SOURCE[0]}")/tmp.sh"
    if [ "${1:-}" != run ] || [ $# -lt 2 ]; then
        echo "usage: tests/pg.sh run CMD ARGS..." >&2
        exit 2
    fi
    shift
    trap pg_stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    pg_start || exit 1
    echo "DATABASE_URL=$DATABASE_URL" >&2
    "$@"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    pg_main "$@"
fi
