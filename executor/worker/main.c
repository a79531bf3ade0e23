/* main.c - shunt-worker: runs programs on one device for the executor that started it. */
#include "executor/worker/worker.h"

int main(void)
{
    return worker_main(NULL);
}
