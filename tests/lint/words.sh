#!/usr/bin/env bash
# words.sh - words that say how a file came about instead of what it does, host names of package
# registries, and paths of one machine. Each word has one letter in brackets: so this file is clean.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

words=(
    'cl[a]ude' 'anthr[o]pic' 'chatg[p]t' 'open[a]i' 'copil[o]t' '\bg[p]t-?[3-9]'
    '\ba[i] (tool|assistant|agent|model wrote)' '\ba[i]-generated' 'language [m]odel wrote'
    '(sub|coding |helper |parallel )-?[a]gents?\b'
    '(this|another|earlier|previous|next) [s]ession\b'
    '\bcoordin[a]tor commits' '\bthe br[i]ef\b' 'br[i]ef\.md'
    'pyp[i]\.org' 'python[h]osted\.org' 'npmj[s]\.(com|org)' 'crat[e]s\.io' 'docs\.r[s]\b'
    'proxy\.gol[a]ng\.org' 'an[a]conda\.org' 'hub\.d[o]cker\.com' 'd[o]cker\.io/' 'ghc[r]\.io'
    'qua[y]\.io' 'huggingf[a]ce\.co' 'deb\.deb[i]an\.org'
    '(^|[^A-Za-z0-9_.-])/w[o]rk(/|\b)'
)
regex=$(IFS='|'; printf '%s' "${words[*]}")

found=$(git ls-files -co --exclude-standard -z | xargs -0 -r grep -sInEi -- "$regex")
[ -z "$found" ] || { printf '%s\n' "$found" | cut -c1-200; exit 1; }
