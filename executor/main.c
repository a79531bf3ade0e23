/* main.c - shunt-executor: owns one device; runs requests and one training job on it. */
#include "executor/program.h"

int main(int argc, char **argv)
{
    struct exec_conf conf = {.name = NULL};
    const struct exec_program p = {.options = &EXEC_OPTIONS, .conf = &conf};

    return exec_program(&p, argc, argv);
}
