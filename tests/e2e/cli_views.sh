#!/usr/bin/env bash
# cli_views.sh - what every noun of `shunt` has alike: each form of output, --watch, --dry-run,
# profiles, completion, exit statuses, and words of advice. The nouns come from the program itself.
# Without it: a new noun could print YAML that reads back as something else, a dry run could change
# something, or a script could not tell "there is none" from "refused".
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

python=$(PATH=/usr/bin:$PATH command -v python3)
"$python" -c 'import yaml' 2>/dev/null || python=$("$root/tests/venv.sh")
conf=$tmp/config
hostile=("no" "NULL" "~" "007" "1e3" "0x1f" "1:30" "2026-11-22" "a " "- a" "a: b" "a #b"
    "'q' \"q\" \\" "{a}" "[a, b]" "&a *b" "!t" "%p" "@x" "|" "é☃ 😀"
    $'two\nlines' $'tab\tbell\a' $'\e[2J')

# What each noun of get wants before it answers: nothing, or the first of these that it takes.
args_of() {
    local a
    for a in "" m 1 alpha; do
        # shellcheck disable=SC2086 # nothing is no argument
        "${all[@]}" get "$1" $a -o json >/dev/null 2>&1 && printf '%s\n' "$a" && return 0
    done
    return 1
}

# same_data NOUN ARG: YAML and JSON of the same thing are the same. What moves by itself may differ
# between two calls, so it has three tries; usage decays all the time.
same_data() {
    for _ in 1 2 3; do
        # shellcheck disable=SC2086
        "${all[@]}" get "$1" $2 -o json >"$tmp/a.json" &&
            "${all[@]}" get "$1" $2 -o yaml >"$tmp/a.yaml" || return 1
        "$python" -c '
import json, math, sys, yaml
def same(a, b):
    if type(a) != type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return math.isclose(a, b, rel_tol=1e-4) if isinstance(a, float) else a == b
a, b = json.load(open(sys.argv[1])), yaml.safe_load(open(sys.argv[2]))
sys.exit(0 if same(a, b) else "%r\n%r" % (a, b))
' "$tmp/a.json" "$tmp/a.yaml" && return 0
    done
    return 1
}

# wider NOUN ARG: -o wide has what a table has, and never less
wider() {
    # shellcheck disable=SC2086
    "${all[@]}" get "$1" $2 | sed -n 1p | wc -c >"$tmp/table" && "${all[@]}" get "$1" $2 -o wide |
        sed -n 1p | wc -c >"$tmp/wide" && [ "$(cat "$tmp/wide")" -ge "$(cat "$tmp/table")" ]
}

# on_terminal COLUMNS COMMAND...: what it prints on one
on_terminal() {
    "$python" - "$@" <<'END'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 24, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
out = b""
try:
    while more := os.read(fd, 1 << 16):
        out += more
except OSError:
    pass  # its end
sys.stdout.buffer.write(out.replace(b"\r\n", b"\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
}

# narrow NOUN ARG: no line of a list is longer than a terminal is wide; a pipe has all columns
narrow() {
    # shellcheck disable=SC2086
    if "${all[@]}" get "$1" $2 -o json | grep -qx '{'; then return 0; fi
    # shellcheck disable=SC2086
    on_terminal 80 "${all[@]}" get "$1" $2 >"$tmp/narrow" &&
        "$python" -c 'import sys; sys.exit(any(len(l.rstrip("\n")) > 80 for l in sys.stdin))' \
            <"$tmp/narrow" &&
        on_terminal 1000 "${all[@]}" get "$1" $2 | sed -n 1p >"$tmp/all" &&
        "${all[@]}" get "$1" $2 | sed -n 1p | diff "$tmp/all" - # the titles
}

# aligned FILE: each column begins where its title does
aligned() {
    "$python" - "$1" <<'END'
import re, sys
rows = open(sys.argv[1], encoding="utf-8").read().split("\n")[:-1]
starts = [m.start() for m in re.finditer(r"(?:(?<=  )|^)\S", rows[0])]
for r in rows[1:]:
    for s in starts:
        if len(r) <= s or r[s] == " " or (s and r[s - 2:s] != "  "):
            sys.exit("column at %d: %r\n%r" % (s, rows[0], r))
END
}

lacks() { ! grep -q -- "$1" "$2"; }
# has N PATTERN FILE: so many lines of it
has() { [ "$(grep -c -- "$2" "$3")" = "$1" ]; }

# looks NOUN ARG: --watch prints what a look prints, and goes on
looks() {
    local pid rc=0
    rm -f "$tmp/watch"
    # shellcheck disable=SC2086
    "${all[@]}" get "$1" $2 --watch --every-ms 100 >"$tmp/watch" 2>&1 &
    pid=$!
    until_ok [ -s "$tmp/watch" ] && kill "$pid" || rc=1 # it is still there
    wait "$pid" 2>/dev/null
    return "$rc"
}

every_noun() {
    local noun arg n=0
    while read -r noun; do
        n=$((n + 1))
        ok "get $noun answers to one of the arguments that are tried here" args_of "$noun"
        arg=$(args_of "$noun")
        ok "get $noun: YAML says what JSON says" same_data "$noun" "$arg"
        ok "get $noun: wide is no less" wider "$noun" "$arg"
        ok "get $noun: no wider than a terminal" narrow "$noun" "$arg"
        # shellcheck disable=SC2086
        ok "get $noun: names" "${all[@]}" get "$noun" $arg -o name
        ok "get $noun: --watch" looks "$noun" "$arg"
        # shellcheck disable=SC2086
        exits "get $noun: another form of output is refused, naming those there are" 2 "yaml" \
            "${all[@]}" get "$noun" $arg -o xml
        exits "get $noun: no server is status 3, with advice" 3 "shunt status" \
            "${all[@]}" get "$noun" ${arg:+"$arg"} --server http://127.0.0.1:1
    done < <("$bin/shunt" --complete get '')
    ok "there were nouns" [ "$n" -ge 16 ]
}

forms() {
    local name
    for name in "${hostile[@]}"; do
        ok "a job named as YAML would mind" "${sh[@]}" submit --model m --dataset d --labels label \
            --loss cross-entropy --epochs 1 --hold --name "$name"
    done
    ok "reads back from YAML as it is" same_data jobs ""
    "${sh[@]}" get jobs >"$tmp/jobs" && "${sh[@]}" get jobs -o wide >"$tmp/jobs.wide"
    ok "the table stays in line" aligned "$tmp/jobs"
    ok "the wide one too" aligned "$tmp/jobs.wide"
    ok "no control character comes through" lacks $'[\x01-\x08\x0b-\x1f]' "$tmp/jobs"
    exits "columns that only wide has" 0 "PRIORITY" "${sh[@]}" get jobs -o wide
    exits "of all tenants, with whose they are" 0 "TENANT" shunt get jobs -A
    exits "live ones" 0 "HELD" "${sh[@]}" get jobs --live
    exits "options may stand before the noun" 0 "HELD" "${sh[@]}" get --state HELD jobs
    exits "a list of all is refused kindly without a tenant" 1 "--all-tenants" shunt get jobs
}

watches() {
    local pid
    "${sh[@]}" get jobs -w --every-ms 100 >"$tmp/w" 2>"$tmp/w.err" &
    pid=$!
    ok "it begins with all there is" until_ok grep -q HELD "$tmp/w"
    ok "a change" "${sh[@]}" cancel 1
    ok "is one line more" until_ok has 2 '^1 ' "$tmp/w"
    ok "and the others are not said again" has 1 '^2 ' "$tmp/w"
    tac "$tmp/w" | sed '/^JOB/q' | tac >"$tmp/w.last"
    ok "in line with a title, which comes again if it must" aligned "$tmp/w.last"
    ok "it survives a server that is away" comes_back_api
    ok "another change" "${sh[@]}" cancel 2
    ok "is seen" until_ok has 1 '^2 .*CANCELLED' "$tmp/w"
    kill "$pid"
    wait "$pid" 2>/dev/null
    "${sh[@]}" get queues -w --every-ms 100 -o json >"$tmp/w" 2>"$tmp/w.err" &
    pid=$!
    ok "as JSON: one document a line" until_ok jq -e .name "$tmp/w"
    ok "a thing" "${sh[@]}" create queue passing
    ok "comes" until_ok grep -q passing "$tmp/w"
    ok "and goes" "${sh[@]}" delete queue passing
    ok "which is said" until_ok grep -q "passing is gone" "$tmp/w.err"
    kill "$pid"
    wait "$pid" 2>/dev/null
}

comes_back_api() {
    local old
    old=$(awk '{print $1}' "$state/run/api.pid")
    kill -KILL "$old" || return 1
    until_ok shunt status
}

# all that can be read, but what moves by itself
everything() {
    local noun arg
    while read -r noun; do
        arg=$(args_of "$noun")
        printf '== %s\n' "$noun"
        # shellcheck disable=SC2086
        "${all[@]}" get "$noun" $arg -o json | jq -S 'walk(if type == "object" then
            del(.at, .seen_at, .heard_at, .last_used_at, .last_use_at, .waiting_gpus, .fair_gpus,
                .waiting, .reason, .row_version, .usage_gpu_seconds, .usage_per_weight, .saturation,
                .traffic)
            else . end)'
    done < <("$bin/shunt" --complete get '' | grep -v usage)
}

dry_runs() {
    local words n=0
    everything >"$tmp/before"
    while read -r words; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        ok "$words --dry-run" shunt ${words/KEY/$id} --dry-run -n alpha
    done <<'END'
create tenant beta
create key k2 --save /nowhere/at/all
create model m2
create dataset d2
create queue q2
set tenant alpha --state SUSPENDED
set visibility m shared
set slo m --latency-ms 7
set job 3 --priority 5
set queue q --priority 9
set quota alpha max_running_jobs=3
delete key KEY
delete dataset spare
delete queue q
rotate key KEY
pin m
unload m
submit --model m --dataset d --labels label --loss cross-entropy --epochs 1 --wait
cancel 3
release 3
END
    exits "a refusal is the same" 4 "no job" "${sh[@]}" cancel 999999 --dry-run
    exits "in each way" 1 "cancel them first" "${sh[@]}" delete model m --dry-run
    exits "and says what it is" 1 "would refuse it; this was a dry run" \
        "${sh[@]}" delete dataset d --dry-run
    exits "with where to see what is in the way" 1 "shunt get jobs --live" \
        "${sh[@]}" delete dataset d
    everything >"$tmp/after"
    ok "nothing is changed" diff "$tmp/before" "$tmp/after"
    ok "that was something" [ "$(wc -l <"$tmp/before")" -gt 200 ]
    ok "and each command was tried" [ "$n" -eq 20 ]
    exits "what reads takes no dry run" 2 "no option" "${sh[@]}" get jobs --dry-run
}

profiles() {
    local url
    url=$(shunt up -o name)
    p() { "$bin/shunt" --config "$conf" "$@"; }
    printf '# mine\nquiet = false\n' >"$conf"
    exits "none yet" 0 "PROFILE" p config profiles
    exits "an unknown one is refused with advice" 4 "shunt config set" p config use here
    ok "set one" p config set here "server=$url" "key-file=$tmp/key"
    ok "and another" p config set there server=http://127.0.0.1:1 key=shunt_secret output=json
    ok "what a person wrote stays" grep -qx '# mine' "$conf"
    ok "only its owner reads it" [ "$(stat -c %a "$conf")" = 600 ]
    exits "the first one leads to the system" 0 "HELD" p get jobs --profile here
    exits "the environment may name it" 0 "HELD" env SHUNT_PROFILE=here \
        "$bin/shunt" --config "$conf" get jobs
    exits "a name on the command line wins over the environment" 0 "HELD" \
        env SHUNT_SERVER=http://127.0.0.1:8 SHUNT_KEY=shunt_aaaaaaaaaaaa_x \
        "$bin/shunt" --config "$conf" get jobs --profile here
    exits "one of the environment does not" 3 "127.0.0.1:8" \
        env SHUNT_PROFILE=here SHUNT_SERVER=http://127.0.0.1:8 \
        "$bin/shunt" --config "$conf" get jobs
    exits "a state folder on the command line says where, whatever the environment" 0 "HELD" \
        env SHUNT_SERVER=http://127.0.0.1:8 "$bin/shunt" get jobs --state-dir "$state" \
        --key-file "$tmp/key"
    exits "but not if a server is there too" 3 "127.0.0.1:8" "$bin/shunt" get jobs \
        --state-dir "$state" --server http://127.0.0.1:8
    exits "and not with which key" 1 "The key came from SHUNT_KEY of" \
        env SHUNT_KEY=shunt_aaaaaaaaaaaa_x "$bin/shunt" get jobs --state-dir "$state"
    exits "a refusal names the profile that the key came from" 1 \
        "The key came from profile there of $conf" p get jobs --profile there --server "$url"
    # shellcheck disable=SC2016 # the inner shell expands it
    ok "only if it did" bash -c '! "$@" 2>&1 | grep "came from"' - "$bin/shunt" --config "$conf" \
        get jobs --profile there --server "$url" --key shunt_aaaaaaaaaaaa_x
    exits "the other one does not" 3 "127.0.0.1:1" p get jobs --profile there
    exits "the command line wins over it" 0 "JOB" p --profile there get jobs --server "$url" \
        --key-file "$tmp/key" --key= -o table
    exits "without one, the lines before the sections count" 3 "127.0.0.1:8" \
        env SHUNT_SERVER=http://127.0.0.1:8 "$bin/shunt" --config "$conf" get jobs
    exits "a variable that goes before a profile in use is named" 0 \
        "But SHUNT_KEY_FILE is set" env SHUNT_KEY_FILE="$tmp/key" \
        "$bin/shunt" --config "$conf" config use here
    p config use here >"$tmp/use"
    ok "of none nothing is said" lacks But "$tmp/use"
    exits "without --profile" 0 "HELD" p get jobs
    exits "an empty --profile is none: the state folder's key is the admin's" 1 "--all-tenants" \
        p get jobs --profile= --state-dir "$state"
    SHUNT_SERVER=http://127.0.0.1:8 exits "status is about its state folder" 0 "requests ready" \
        shunt status
    exits "the list says which" 0 "yes" p config profiles
    p config profiles -o yaml >"$tmp/profiles"
    ok "a secret is not shown" lacks secret "$tmp/profiles"
    exits "a name that is none of the file's" 2 "here, there" p get jobs --profile nowhere
    exits "a field that there is not" 2 "key-file" p config set here colour=red
    (cd "$tmp" && p config set paths key-file=key state-dir=a/b ca-file=~/ca server=here -q)
    ok "a path counts from where it was said" [ "$(p config profiles paths -o json | jq -c \
        '[.["key-file"], .["state-dir"], .["ca-file"], .server]')" = \
        "[\"$tmp/key\",\"$tmp/a/b\",\"$HOME/ca\",\"here\"]" ]
    ok "it goes" p config delete paths
    ok "take a field away" p config set there output=
    ok "it is gone" lacks output "$conf"
    ok "delete the one in use" p config delete here
    ok "the file is as before, but for the other one" \
        [ "$(head -n 2 "$conf")" = $'# mine\nquiet = false' ]
    printf '[a]\ndb-url = postgresql://me:secret@x/y\nkey = secret\n' >"$tmp/written"
    "$bin/shunt" --config "$tmp/written" config profiles -o json >"$tmp/profiles"
    ok "one that a person wrote is there" grep -q db-url "$tmp/profiles"
    ok "without its secrets" lacks secret "$tmp/profiles"
    printf '[a]\nserver = x\n[a]\nserver = y\n' >"$tmp/twice"
    exits "a section twice is refused with its line" 2 "line 3" "$bin/shunt" --config "$tmp/twice" \
        --profile a get jobs
}

# bash_offers WANT WORD...: in bash, the last word completes to exactly these
# shellcheck disable=SC2016 # the inner shell expands it
bash_offers() {
    local want=$1
    shift
    [ "$(cd "$tmp/files" && bash -c 'source <("$0" --completion bash); COMP_WORDS=(shunt "$@")
        COMP_CWORD=$#; _shunt "$0" 2>/dev/null; printf "%s " "${COMPREPLY[@]}"' \
        "$bin/shunt" "$@")" = "$want" ]
}

# zsh_types WANT TEXT: in zsh, TEXT and a TAB become WANT and a blank. The line is asked for by a
# key of its own: what the terminal gets are only the places that change.
zsh_types() {
    PATH=$bin:$PATH zsh -f -c '
zmodload zsh/zpty
zpty -b z zsh -f -i
zpty -w z "unsetopt zle_bracketed_paste; PS1=; autoload -Uz compinit; compinit -u -D
    shown() { print -r -- GOT:\$BUFFER:END }; zle -N shown; bindkey \"^X\" shown
    source <(shunt --completion zsh); echo re\"\"ady"
out=
until [[ $out == *ready* ]]; do zpty -r z line; out+=$line; done
zpty -n -w z "$2"$'"'\\t\\x18'"'
end=$((SECONDS + 120)) out=
until [[ $out == *"GOT:"*":END"* ]] || ((SECONDS > end)); do
    zpty -r -t z line && out+=$line || sleep 0.1
done
zpty -d z
print -r -- "$out"
[[ $out == *"GOT:$1 :END"* ]]' zsh "$1" "$2"
}

completes() {
    local at=(--server "$(shunt up -o name)" --key-file "$tmp/key")
    mkdir "$tmp/files" && touch "$tmp/files/model.onnx"
    ok "verbs" bash_offers "rotate " rot
    ok "nouns" bash_offers "datasets " get dat
    ok "of what others call get" bash_offers "datasets " list dat
    ok "options" bash_offers "--optimizer " submit --opt
    ok "values of options" bash_offers "yaml " get jobs -o y
    ok "as bash cuts them" bash_offers "yaml " get jobs --output = y
    ok "states of jobs" bash_offers "SUSPENDED SUCCEEDED " get jobs --state SU
    ok "names that are live" bash_offers "d " "${at[@]}" get datasets d
    ok "for options too" bash_offers "d " "${at[@]}" submit --model m --dataset d
    ok "jobs by number" bash_offers "20 " "${at[@]}" explain 20
    ok "or a model, where it may be either" bash_offers "m " "${at[@]}" explain m
    ok "for logs too" bash_offers "20 " "${at[@]}" logs 20
    ok "GPUs by name" bash_offers "cpu0 " "${at[@]}" get gpus c
    ok "files" bash_offers "model.onnx " push model x mo
    ok "words of an argument" bash_offers "shared " "${at[@]}" set visibility m s
    ok "nothing where no more is wanted" bash_offers " " "${at[@]}" get datasets d ""
    ok "nothing in time without a server" timeout 5 "$bin/shunt" --complete get models ''
    if command -v zsh >/dev/null; then
        ok "zsh: verbs" zsh_types "shunt rotate" "shunt rota"
        ok "zsh: nouns" zsh_types "shunt get datasets" "shunt get dat"
        ok "zsh: values" zsh_types "shunt get jobs --output=yaml" "shunt get jobs --output=ya"
        ok "zsh: live names" zsh_types "shunt ${at[*]} get datasets spare" \
            "shunt ${at[*]} get datasets spa"
        ok "zsh: files" zsh_types "shunt push model x $tmp/files/model.onnx" \
            "shunt push model x $tmp/files/mo"
    else
        echo "skip: zsh is not installed"
    fi
}

advice() {
    exits "nothing of the name is status 4, and says where the names are" 4 "shunt get models" \
        "${sh[@]}" infer none --random 1
    exits "of a key too" 4 "shunt get keys" shunt rotate key none -n alpha
    exits "of several jobs each is tried" 4 "no job \"999999\"" "${sh[@]}" cancel 4 999999 5 -o name
    exits "and done" 0 "CANCELLED" "${sh[@]}" get jobs 5
    exits "late is status 5" 5 "it goes on" "${sh[@]}" wait job 3 --wait-s 1
    exits "a slip" 2 "did you mean create" shunt craete tenant x
    exits "a slip in an option" 2 "did you mean --state" "${sh[@]}" get jobs --sate HELD
    exits "a number that is none, of the option" 2 "--latency-ms wants" "${sh[@]}" set slo m \
        --latency-ms soon
    exits "nothing to change" 2 "--deadline" "${sh[@]}" set job 3
    exits "a file that is not there, by its name" 1 "no-such-file" \
        "${sh[@]}" infer m --inputs no-such-file
    head -c 4096 /dev/zero >"$tmp/zeros"
    exits "a file that is no dataset" 1 "no safetensors file" \
        "${sh[@]}" push dataset zeros "$tmp/zeros"
    exits "a noun alone" 2 "shunt get jobs" shunt jobs
    exits "a word of Slurm" 2 "get jobs --live" shunt squeue
    exits "help of a command, asked for in front" 0 "--max-batch" shunt help push model
    exits "or in the words of others" 0 "--watch" shunt list jobs --help
    exits "help of what is none" 2 "no command" shunt help fly
    exits "fields of the spec are options here" 1 "give either --steps or --epochs" \
        "${sh[@]}" submit --model m --dataset d
    exits "whose key it is" 0 "tenant-admin" "${sh[@]}" whoami
    exits "a tenant's key needs no --tenant for its own keys" 0 "tenant-admin" "${sh[@]}" get keys
    exits "nor for its quota" 0 "max_gpus" "${sh[@]}" get quota
    exits "an admin's does" 2 "--tenant" shunt get keys
    exits "suspend a tenant" 0 "SUSPENDED" shunt set tenant alpha --state SUSPENDED
    exits "its keys change nothing then" 1 "suspended" "${sh[@]}" cancel 3
    exits "and back" 0 "ACTIVE" shunt set tenant alpha --state ACTIVE
}

ok "up starts a system" shunt up --port 0 --pool-bytes 256M || exit 1
ok "a tenant" shunt create tenant alpha
ok "its key" shunt create key k --tenant alpha --role tenant-admin --save "$tmp/key"
sh=("$bin/shunt" --state-dir "$state" --key-file "$tmp/key")
all=("$bin/shunt" --state-dir "$state" --tenant alpha) # an admin, who sees all
id=$(shunt get keys --tenant alpha -o name)
"$bin/shunt-zoo" digits-cnn --form training --out "$tmp/m.onnx"
ok "a model" "${sh[@]}" push model m "$tmp/m.onnx" --wait
for name in d spare; do
    ok "a dataset" "${sh[@]}" push dataset "$name" "$root/examples/digits/test.safetensors"
done
ok "a target" "${sh[@]}" set slo m --latency-ms 60000
ok "a queue" "${sh[@]}" create queue q
ok "something to list" "${sh[@]}" infer m --random 1
forms
every_noun
watches
dry_runs
profiles
completes
advice
