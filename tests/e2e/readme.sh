#!/usr/bin/env bash
# readme.sh - what README.md and the first steps of `shunt --help` tell a newcomer to type, typed.
# Without it: the first thing that somebody tries could be what nobody tried since.
#
# In a folder that looks like the source tree, so that no system of this one is touched. Changed are
# only the port, and what a person fills in: the key that was printed, names of files and things.
set -uo pipefail
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

port=$(free_port)

# blocks SECTION LANGUAGE: these blocks of README.md
blocks() {
    awk -v begin="\`\`\`$2" -v section="## $1" '/^## /{use = $0 == section}
        use && $0 == "```"{on = 0} use && on
        use && $0 == begin{on = 1; print "" >"/dev/stderr"}' "$root/README.md" 2>>"$tmp/n_blocks"
}

# All but `make test`, which this is a part of.
try_it() {
    local at=$tmp/try
    place "$at" || return 1
    blocks "Try it" sh | grep -vE '^make test( |$)' >"$at/commands"
    ok "README.md has a demo" grep -qE '^make demo( |$)' "$at/commands"
    ok "it runs as printed" in_place "$at" env SHUNT_DEMO_STATE="$at/.shunt" \
        bash -euo pipefail "$at/commands"
    ok "and has a summary" test -s "$at/.shunt/demo.json"
}

# Who prints a block that nobody can run says why, in a line <!-- not run: why --> before it.
each_is_run() {
    local all run
    all=$(awk '/^```/ { if (!on && before !~ /^<!-- not run: .+ -->$/) n++; on = !on }
        { before = $0 } END { print n + 0 }' "$root/README.md")
    run=$(wc -l <"$tmp/n_blocks")
    ok "each of the $all blocks of README.md was run, or says why not: $run" [ "$run" -eq "$all" ]
}

readme() {
    local at=$tmp/readme python n
    place "$at" || return 1
    python=$("$root/tests/venv.sh") || return 1
    client_in "$tmp/client" || return 1
    blocks "Use it" python | sed "s/localhost:8000/localhost:$port/" >"$at/client.py"
    # The client stands between the two blocks of commands.
    # shellcheck disable=SC2016 # the last $() is for the story's shell
    blocks "Use it" sh | sed -E 's/ *#.*//; s/localhost:8000/localhost:'"$port"'/
        s/^shunt create key .*/& | tee key.out/
        s/^export SHUNT_KEY=shunt_\.\.\.$/export SHUNT_KEY=$(head -n 1 key.out)/' |
        sed "/^shunt set slo/a \"$python\" client.py" >"$at/commands"
    blocks "Use it" json >"$at/jobs.jsonl"
    blocks "Use it" py >"$at/own_client.py"
    echo "shunt submit -f jobs.jsonl
PYTHONPATH=$tmp/client/src \"$python\" own_client.py" >>"$at/commands"
    n=$(grep -cE '^("|shunt (up|push|infer|submit|set slo)|export SHUNT_KEY=\$)' "$at/commands")
    ok "README.md has the commands that are looked for" [ "$n" -ge 9 ]
    ok "they run as printed" in_place "$at" bash -euo pipefail "$at/commands"
    n=$(grep -cx '(1, 1000)' "$tmp/out.keep")
    ok "both clients printed the shape of what the model answers" [ "$n" -eq 2 ]
    ok "and the training ended" grep -q SUCCEEDED "$tmp/out.keep"
    n=$(grep -oE '"outputs":[^]]*"shape":\[1,10\]' "$tmp/out.keep" | wc -l)
    ok "which curl asked, with numbers and with binary tensors" [ "$n" -eq 2 ]
    ok "nothing is left running" in_place "$at" "$bin/shunt" down --purge
}

# The first steps of the help, one command a line.
steps() {
    "$bin/shunt" --help | sed -n '/^First steps:/,/^$/p' | sed '1d;$d' | sed -E 's/ {3,}/\n/g' |
        sed -E 's/^ +//' | grep -E '^(shunt|export) '
}

first_steps() {
    local at=$tmp/steps
    place "$at" || return 1
    "$bin/shunt-zoo" digits-cnn --form training --out "$at/FILE.onnx"
    cp "$root/examples/digits/test.safetensors" "$at/FILE.safetensors"
    steps | sed -E 's/ T( |$)/ t\1/g; s/--labels NAME/--labels label/; s/JOB/1/;
        s/^shunt (.*--watch)/! timeout 5 shunt \1/' >"$at/commands"
    ok "the help has first steps" [ "$(wc -l <"$at/commands")" -ge 11 ]
    ok "they run as printed" in_place "$at" env PATH="$bin:$PATH" bash -euxo pipefail "$at/commands"
    ok "the watch saw the job" grep -q '^1 ' "$tmp/out.keep"
    ok "nothing is left running" in_place "$at" "$bin/shunt" down --purge
}

# Every command that the help lists has a help of its own, which begins with its usage.
# shellcheck disable=SC2016 # the backquotes are Markdown's
help_of_each() {
    local line words n=0
    while read -r line; do
        n=$((n + 1))
        words=$(sed -E 's/^shunt ([a-z]+( [a-z]+)?).*/\1/' <<<"$line")
        # shellcheck disable=SC2086
        exits "help of $words" 0 "$line [options]" "$bin/shunt" help $words
        ok "it is in shunt --help" grep -qF -- "  ${line#shunt } " <("$bin/shunt" --help)
    done < <("$bin/shunt" --docs | sed -nE 's/^\| `(shunt [^`]+)` \|.*/\1/p' | sed 's/\\|/|/g')
    ok "there were commands" [ "$n" -ge 60 ]
}

help_of_each
first_steps
try_it
readme
each_is_run
