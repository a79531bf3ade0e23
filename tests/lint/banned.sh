#!/usr/bin/env bash
# banned.sh - calls that are unsafe or keep hidden state, a clock in a macro that reads it twice,
# mutable state at file scope; rows of zeros where a time has a unit. Comments and strings are
# blanked out before the search, so that they may talk about all of this.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

# shellcheck disable=SC2016 # the dollar signs are perl's
git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | xargs -r perl -e '
    my $rc = 0;
    my $never = join "|", qw(sprintf vsprintf strcpy strcat strncpy strncat strtok atoi atol atoll
        atof gets alloca system popen rand srand localtime gmtime ctime asctime strerror setjmp
        longjmp);
    # at the margin, without const, and no parenthesis before "=" or ";": neither a constant nor a
    # function
    my $type = "(?:_Atomic|_Thread_local|atomic_|volatile|unsigned|int|bool|char|long|double" .
        "|float|size_t|u?int[0-9]+_t|pthread_|struct \\w+ )";
    my $variable =
        qr/^(?:static\s(?!inline)|$type)(?![^;={()]*\bconst\b)[^;={()]*\w[^;={()]*[=;]/m;
    sub say_no {
        my ($file, $text, $at, $why) = @_;
        my $line = 1 + (substr($text, 0, $at) =~ tr/\n//);
        print "$file:$line: $why\n";
        $rc = 1;
    }
    for my $file (@ARGV) {
        next if !-e $file; # removed, and not yet committed
        open my $f, "<", $file or die "$file: $!";
        local $/;
        my $t = <$f>;
        # the same number of characters and lines stays
        $t =~ s{(/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\x27(?:\\.|[^\x27\\\n])+\x27)}
               {my $s = $1; $s =~ s/[^\n]/ /g; $s}gse;
        my $is_test = $file =~ m{^tests/};
        while ($t =~ /(?<![\w.]|->)($never)\s*\(/g) {
            say_no($file, $t, $-[1], "$1() is banned");
        }
        if (!$is_test && $file !~ m{(^|/)main\.c$}) {
            while ($t =~ /(?<![\w.]|->)exit\s*\(/g) {
                say_no($file, $t, $-[0], "exit() is for main.c");
            }
        }
        if (!$is_test && $file ne "common/conf.c") {
            while ($t =~ /\b(getenv|secure_getenv|getopt|getopt_long)\s*\(/g) {
                say_no($file, $t, $-[1], "$1() is for common/conf.c");
            }
        }
        my $is_product = $file =~ m{^(api|cli|common|executor|runtime|scheduler|simulate|zoo)/};
        while ($t =~ /\bSH_M(?:IN|AX)(\((?:[^()]++|(?1))*\))/g) {
            my ($args, $at) = ($1, $-[0]);
            say_no($file, $t, $at, "SH_MIN() and SH_MAX() would look at the clock twice")
                if $args =~ /\bsh_clock_\w+\(/;
        }
        while ($is_product && $t =~ m{(?:_NS\s+\(?|[*/%] )(?:INT64_C\()?\d+000000L*\b}g) {
            say_no($file, $t, $-[0], "a time has a unit: SH_MS() of common/units.h");
        }
        my $may_have_state = $is_test
            || $file =~ m{^bench/|^common/(log|metrics\w*|clock|trace)\.c$|(^|/)main\.c$|\.c?u?h$};
        while (!$may_have_state && $t =~ /$variable/gm) {
            say_no($file, $t, $-[0], "mutable state at file scope");
        }
    }
    exit $rc;
'
