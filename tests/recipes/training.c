/* training.c - the option of training.patch is read, as API and worker read it, and obeyed. */
#include "common/train_spec.h"

#include <stdio.h>
#include <string.h>

static int n_failed;

static void check(bool holds, const char *what)
{
    if (!holds)
        printf("FAIL  %s\n", what);
    n_failed += !holds;
}

/* The code of reading a spec with this in its optimizer; *rate: of the first update. */
static int read_with(const char *name, const char *option, double *rate, struct sh_err *err)
{
    char text[200];
    struct train_spec t;
    json_t *spec;
    int rc;

    snprintf(text, sizeof(text), "{\"steps\":5,\"optimizer\":{\"name\":\"%s\",\"lr\":0.5%s}}", name,
             option);
    spec = json_loads(text, 0, NULL);
    rc = train_spec_read(spec, &t, err);
    *rate = rc ? -1 : train_rate(&t, 0, 5);
    json_decref(spec);
    return rc;
}

int main(void)
{
    struct sh_err err = {0}, other = {0};
    double rate;

    check(read_with("sgd", "", &rate, NULL) == SH_OK && rate == 0.5, "without it all is as it was");
    check(read_with("adam", ",\"throwaway_cap\":0.25", &rate, NULL) == SH_OK && rate == 0.25,
          "the rate is capped");
    check(read_with("sgd", ",\"throwaway_cap\":0", &rate, NULL) == SH_OK && rate == 0,
          "the least is taken");
    check(read_with("sgd", ",\"throwaway_cap\":1e6", &rate, NULL) == SH_OK, "the most is taken");
    check(read_with("sgd", ",\"throwaway_cap\":1000001", &rate, &err) == SH_E_INVALID &&
              strstr(err.msg, "spec.optimizer.throwaway_cap"),
          "more is refused, by its name");
    check(read_with("sgd", ",\"throwaway_cap\":-1", &rate, &other) == SH_E_INVALID,
          "less is refused");
    return n_failed > 0;
}
