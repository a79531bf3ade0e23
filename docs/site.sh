#!/usr/bin/env bash
# site.sh DIR - writes all pages of the tree as a static site to DIR, by Debian's mkdocs; `make
# docs-site` runs it, and shunt-api sends it (api/console/docs.h). A link that leads nowhere is an
# error, and so is what that server's policy would forbid.
set -euo pipefail

out=$(realpath -m "${1:?usage: docs/site.sh DIR}")
cd "$(dirname "$0")/.."
command -v mkdocs >/dev/null || {
    echo "docs/site.sh: there is no mkdocs here: run make deps, or apt-get install mkdocs" >&2
    exit 1
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/source"
# What is ours: in an image there is no .git, and nothing but the sources.
files() {
    git ls-files -co --exclude-standard 2>/dev/null ||
        find . -type f ! -path './build*' ! -path './.*' -printf '%P\n'
}
# all but the texts from which two of them are printed
pages() { files | grep '\.md$' | grep -vxE 'bench/(scale|sim/replay)\.md'; }
# Pages, pictures, and the few files of the sources that pages link to.
{
    pages
    files | grep '^docs/figures/'
    pages | xargs grep -oE '\]\([^):#]+\.(py|cu)\)' |
        sed -E 's/:\]\(/ /; s/\)$//' |
        while read -r page file; do
            realpath --relative-to=. "$(dirname "$page")/$file"
        done
} | sort -u | xargs cp --parents -t "$dir/source"
cp -r docs/mkdocs.yml docs/theme "$dir/"
cp api/console/icon.svg "$dir/theme/"
mkdocs build --quiet --strict --config-file "$dir/mkdocs.yml"
if grep -rlE '(src|href)="(https?:)?//[^"]+\.(js|css|woff2?)"' "$dir/html" --include='*.html'; then
    echo "docs/site.sh: these pages fetch something from another host" >&2
    exit 1
fi
inside='<style\b|<script(?![^>]*\ssrc=)|<[a-z][^<>]*\s(style|on[a-z]+)='
if grep -rnP "$inside" "$dir/html" --include='*.html'; then
    echo "docs/site.sh: these pages have a script or a style inside" >&2
    exit 1
fi
rm -f "$dir/html"/sitemap.xml*
mkdir -p "$(dirname "$out")"
rm -rf "$out"
mv "$dir/html" "$out"
printf '%s/index.html\n' "$out"
