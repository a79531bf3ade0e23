# man.awk - what a program prints with --docs (Markdown: headings, tables, lists, `code`), as a page
# for man. docs/print.sh --man calls it for each program, with that program's own text.
#
#   -v name=shunt-api -v section=8 -v version=... -v purpose="serves ..." -v usage="shunt-api [options]"
#
# A table of options becomes a list: each option in bold with the type of its value, below it what
# it means, its range, its default and its variable.

# What man would take as its own.
function plain(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    sub(/^[.']/, "\\\\\\&&", s)
    return s
}

# `code` in bold, [text](target) as text.
function inline(s,   out, parts, n, i) {
    while (match(s, /\[[^]]*\]\([^)]*\)/)) {
        out = substr(s, RSTART + 1, RLENGTH - 1)
        sub(/\]\(.*/, "", out)
        s = substr(s, 1, RSTART - 1) out substr(s, RSTART + RLENGTH)
    }
    out = ""
    n = split(plain(s), parts, /`/)
    for (i = 1; i <= n; i++)
        out = out (i % 2 ? parts[i] : "\\fB" parts[i] "\\fR")
    return out
}

BEGIN {
    printf ".\\\" Printed from what %s --docs says.\n", name
    printf ".TH %s %s \"\" \"Shunt %s\" Shunt\n", toupper(plain(name)), section, plain(version)
    printf ".SH NAME\n%s \\- %s\n", plain(name), plain(purpose)
    printf ".SH SYNOPSIS\n\\fB%s\\fR\n.SH DESCRIPTION\n", plain(usage)
}

# A row of six cells is one of an option of a daemon (common/conf.c); others have two.
function row(cell, n,   more) {
    if (n != 6) {
        printf ".TP\n%s\n%s\n", inline(cell[1]), inline(cell[2])
        return
    }
    gsub(/`/, "", cell[1])
    if (cell[3] == "bool")
        printf ".TP\n\\fB%s\\fR, \\fB\\-\\-no\\-%s\\fR\n", plain(cell[1]), plain(substr(cell[1], 3))
    else
        printf ".TP\n\\fB%s\\fR=\\fI%s\\fR\n", plain(cell[1]), cell[3]
    more = cell[5] == "" ? "" : cell[5] "; "
    printf "%s\n.br\n%sdefault %s; %s\n", inline(cell[6]), inline(more), inline(cell[4]),
        inline(cell[2])
}

/^# / { next } # the page has its own title
$0 == "## " name { is_whole = 1; next }
/^\|/ {
    text = $0
    gsub(/\\\|/, "\001", text)
    n = split(substr(text, 3, length(text) - 4), cell, / \| /)
    for (i = 1; i <= n; i++) {
        gsub(/\001/, "|", cell[i])
        gsub(/^ +| +$/, "", cell[i])
    }
    if (!in_table && is_whole)
        print ".SH OPTIONS"
    is_whole = 0
    if (in_table && $0 !~ /^\| --- /)
        row(cell, n)
    in_table = 1
    next
}
{
    in_table = 0
    sub(/^Printed by `[^`]*`\. /, "")
}
is_fixed && !/^    / {
    print ".fi"
    is_fixed = 0
}
/^##/ { is_new = 0 }
/^## / { printf ".SH %s\n", inline(substr($0, 4)); next }
/^### / { printf ".SS %s\n", inline(substr($0, 5)); next }
/^[0-9]+\. / {
    mark = $1
    sub(/^[0-9]+\. /, "")
    printf ".IP %s 4\n%s\n", mark, inline($0)
    next
}
/^    / { # a list, as it stands
    if (!is_fixed)
        print ".nf"
    is_fixed = 1
    print plain($0)
    next
}
/^$/ { is_new = 1; next }
{
    if (is_new && has_text)
        print ".PP"
    is_new = 0
    has_text = 1
    print inline($0)
}
