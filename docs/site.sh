#!/usr/bin/env bash
# site.sh DIR - writes all pages of the tree as a static site to DIR, by Debian's mkdocs; `make
# docs-site` runs it. A link that leads nowhere is an error.
set -euo pipefail

out=$(realpath -m "${1:?usage: docs/site.sh DIR}")
cd "$(dirname "$0")/.."
command -v mkdocs >/dev/null || {
    echo "docs/site.sh: there is no mkdocs here: apt-get install mkdocs" >&2
    exit 1
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/source"
# all but the texts from which two of them are printed
pages() { git ls-files -co --exclude-standard '*.md' ':!bench/scale.md' ':!bench/sim/replay.md'; }
# Pages, pictures, and the few files of the sources that pages link to.
{
    pages
    git ls-files -co --exclude-standard 'docs/figures/*'
    pages | xargs grep -oE '\]\([^):#]+\.(py|cu)\)' |
        sed -E 's/:\]\(/ /; s/\)$//' |
        while read -r page file; do
            realpath --relative-to=. "$(dirname "$page")/$file"
        done
} | sort -u | xargs cp --parents -t "$dir/source"
cp docs/mkdocs.yml "$dir/"
mkdocs build --quiet --strict --config-file "$dir/mkdocs.yml"
if grep -rlE '(src|href)="(https?:)?//[^"]+\.(js|css|woff2?)"' "$dir/html" --include='*.html'; then
    echo "docs/site.sh: these pages fetch something from another host" >&2
    exit 1
fi
mkdir -p "$(dirname "$out")"
rm -rf "$out"
mv "$dir/html" "$out"
printf '%s/index.html\n' "$out"
