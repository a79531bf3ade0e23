#!/usr/bin/env bash
# size.sh - what is too long to be read: functions, files, headers, lines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

# shellcheck disable=SC2016 # the dollar signs are perl's
git ls-files -co --exclude-standard '*.js' '*.css' '*.html' \
    '*.c' '*.h' '*.cu' '*.cuh' '*.sh' | xargs -r perl -CSD -e '
    my $rc = 0;
    sub say_no { print "@_\n"; $rc = 1; }
    for my $file (@ARGV) {
        next if !-e $file; # removed, and not yet committed
        open my $f, "<", $file or die "$file: $!";
        my ($n, $start, $before, $name) = (0, 0, "", "");
        my $columns = $file =~ /\.(js|css|html)$/ ? 120 : 100;
        while (my $line = <$f>) {
            chomp $line;
            $n++;
            my $len = length $line;
            say_no("$file:$n: $len columns, at most $columns")
                if $len > $columns && $line !~ m{^/\* uses: };
            # clang-format puts the brace of a function at the margin, and those of namespaces too
            ($start, $name) = ($n, $before)
                if $file !~ /\.sh$/ && $line eq "{" && $before !~ /^(namespace|class|extern)\b/;
            if ($start && $line eq "}") {
                my $lines = $n - $start + 1;
                say_no("$file:$start: $lines lines, at most 80: $name") if $lines > 80;
                $start = 0;
            }
            $before = $line;
        }
        my $max = $file =~ /\.(h|cuh)$/ ? 300 : 800;
        say_no("$file: $n lines, at most $max") if $n > $max;
    }
    exit $rc;
'
