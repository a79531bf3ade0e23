/* test_doctor.c - Without it: `shunt doctor` could call a machine fit whose GPU is narrow, locked
 * to one process or without a driver, or could send an operator after a fault that is not there. */
/* uses: libcli.a */
/* link: -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/files/file.h"
#include "cli/host/gpus.h"
#include "cli/host/machine.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#define GPU_DIR "sys/bus/pci/devices/0000:3b:00.0"
#define MIB UINT64_C(1048576)

struct fixture {
    char root[SH_TEST_DIR_BYTES], smi[SH_TEST_DIR_BYTES + 16], run[SH_TEST_DIR_BYTES + 16];
    struct checks k;
    struct gpus g;
};

static int setup(void **state)
{
    static struct fixture f;

    f = (struct fixture){.root = ""};
    sh_test_dir_make(f.root);
    snprintf(f.smi, sizeof(f.smi), "%s/nvidia-smi", f.root);
    snprintf(f.run, sizeof(f.run), "%s/shunt-run", f.root);
    *state = &f;
    return checks_init(&f.k, NULL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    checks_fini(&f->k);
    return file_remove_tree(f->root, NULL);
}

static void put(const struct fixture *f, const char *path, const char *text)
{
    char full[4096];
    FILE *out;

    snprintf(full, sizeof(full), "%s/%s", f->root, path);
    for (char *p = full + strlen(f->root) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = '\0';
        mkdir(full, 0755);
    }
    out = fopen(full, "we");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

/* A GPU on a bus of 16 lanes of 32 GT/s, of which it has some; a driver. */
static void put_gpu(const struct fixture *f, const char *lanes, const char *driver)
{
    put(f, GPU_DIR "/vendor", "0x10de\n");
    put(f, GPU_DIR "/class", "0x030200\n");
    put(f, GPU_DIR "/numa_node", "1\n");
    put(f, GPU_DIR "/current_link_speed", "2.5 GT/s PCIe\n");
    put(f, GPU_DIR "/max_link_speed", "32.0 GT/s PCIe\n");
    put(f, GPU_DIR "/current_link_width", lanes);
    put(f, GPU_DIR "/max_link_width", "16\n");
    if (driver)
        put(f, "proc/driver/nvidia/version", driver);
}

static void put_program(const struct fixture *f, const char *name, const char *script)
{
    char text[1024], path[SH_TEST_DIR_BYTES + 16];

    snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);
    snprintf(path, sizeof(path), "%s/%s", f->root, name);
    put(f, name, text);
    assert_int_equal(chmod(path, 0755), 0);
}

/* nvidia-smi's answers: to the first question, and about the clocks. */
static void put_smi(const struct fixture *f, const char *modes, const char *clocks)
{
    char text[1024];

    snprintf(text, sizeof(text), "case $1 in *reasons*) echo '%s' ;; *) echo '%s' ;; esac", clocks,
             modes);
    put_program(f, "nvidia-smi", text);
}

static const char NEW_DRIVER[] =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06"
    "  Release Build\nGCC version: 12.2\n";

static void judge(struct fixture *f)
{
    gpus_read(f->root, f->smi, &f->g);
    gpus_judge(&f->g, &f->k);
}

/* Is there a check in this state whose finding has this in it? */
static bool said(const struct fixture *f, const char *state, const char *found)
{
    const json_t *e;
    size_t i;

    json_array_foreach(f->k.list, i, e)
    {
        if (strcmp(sh_json_text(e, "state"), state) == 0 &&
            strstr(sh_json_text(e, "found"), found) != NULL)
            return true;
    }
    return false;
}

static void a_gpu_at_its_best_has_no_remark(void **state)
{
    struct fixture *f = *state;

    put_gpu(f, "16\n", NEW_DRIVER);
    put_smi(f, "00000000:3B:00.0, NVIDIA H200, Default, Disabled, Enabled",
            "00000000:3B:00.0, 0x1");
    judge(f);
    assert_int_equal(f->g.n, 1);
    assert_int_equal(f->g.driver, 580);
    assert_true(said(f, "ok", "NVIDIA driver 580.65.06, 1 GPU"));
    assert_true(said(f, "ok", "NVIDIA H200 at 0000:3b:00.0"));
    assert_true(said(f, "ok", "PCIe x16 of x16, 2.5 of 32 GT/s now"));
    assert_int_equal(f->k.n[CHECK_OK], json_array_size(f->k.list));
}

static void a_gpu_on_fewer_lanes_is_named(void **state)
{
    struct fixture *f = *state;

    put_gpu(f, "8\n", NEW_DRIVER);
    put_smi(f, "00000000:3B:00.0, NVIDIA L40, Default, [N/A], Enabled", "00000000:3B:00.0, 0x0");
    judge(f);
    assert_true(said(f, "warning", "PCIe x8 of x16"));
    assert_int_equal(f->k.n[CHECK_FAIL], 0);
}

static void a_device_for_one_process_cannot_be_used(void **state)
{
    struct fixture *f = *state;

    put_gpu(f, "16\n", NEW_DRIVER);
    put_smi(f, "00000000:3B:00.0, NVIDIA H200, Exclusive_Process, Enabled, Disabled",
            "00000000:3B:00.0, 0x28");
    judge(f);
    assert_true(said(f, "FAILED", "compute mode Exclusive_Process"));
    assert_true(said(f, "warning", "MIG is on"));
    assert_true(said(f, "note", "persistence mode is off"));
    assert_true(said(f, "warning", "held back: hardware slowdown, temperature"));
}

static void a_driver_that_is_missing_or_too_old_is_a_failure(void **state)
{
    struct fixture *f = *state;

    put_gpu(f, "16\n", NULL);
    judge(f);
    assert_true(said(f, "FAILED", "1 NVIDIA GPU, but no driver is loaded"));
    put(f, "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n");
    judge(f);
    assert_true(said(f, "FAILED", "NVIDIA driver 550.54.15"));
}

static void a_gpu_that_only_nvidia_smi_sees_is_counted(void **state)
{
    struct fixture *f = *state;

    put(f, "proc/driver/nvidia/version", NEW_DRIVER);
    put_smi(f, "00000000:C1:00.0, NVIDIA H200, Default, Disabled, Enabled",
            "00000000:C1:00.0, 0x1");
    judge(f);
    assert_int_equal(f->g.n, 1);
    assert_string_equal(f->g.gpu[0].pci, "00000000:C1:00.0");
    assert_int_equal(f->k.n[CHECK_FAIL], 0);
}

static void other_devices_of_the_bus_are_no_gpus(void **state)
{
    struct fixture *f = *state;

    put(f, "sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086\n");
    put(f, "sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n");
    put(f, "sys/bus/pci/devices/0000:02:00.0/vendor", "0x10de\n");
    put(f, "sys/bus/pci/devices/0000:02:00.0/class", "0x040300\n");
    judge(f);
    assert_int_equal(f->g.n, 0);
    assert_true(said(f, "FAILED", "no NVIDIA GPU and no driver"));
}

static void a_slow_link_is_named_beside_what_the_bus_carries(void **state)
{
    static const struct gpu ON_THE_BUS = {.numa_node = 0,
                                          .link = {.max_gt_per_s = 32, .max_width = 16}};
    struct fixture *f = *state;
    json_t *j = json_pack("{s:s, s:I, s:f, s:f, s:b, s:s, s:b, s:b}", "identity",
                          "cuda driver=13000", "memory_bytes", (json_int_t)150000000000,
                          "link_gb_per_s", 55.0, "link_latency_us", 1.5, "page_locks", 1,
                          "page_lock_error", "", "fences_files", 1, "fences_calls", 1);

    gpus_judge_device("cuda:0", j, &ON_THE_BUS, &f->k);
    assert_true(said(f, "ok", "55.0 GB/s, 87 % of what PCIe carries"));
    assert_int_equal(f->k.n[CHECK_OK], json_array_size(f->k.list));
    json_object_set_new(j, "link_gb_per_s", json_real(12));
    json_object_set_new(j, "fences_files", json_false());
    json_object_set_new(j, "page_locks", json_false());
    gpus_judge_device("cuda:0", j, &ON_THE_BUS, &f->k);
    json_decref(j);
    assert_true(said(f, "warning", "12.0 GB/s, 19 % of what PCIe carries"));
    assert_true(said(f, "warning", "files: not hidden; system calls: listed"));
    assert_true(said(f, "warning", "host memory cannot be page-locked"));
}

/* Two GPUs, of which CUDA shows the second alone, as its device 0. */
static void put_two(struct fixture *f)
{
    put_gpu(f, "16\n", NEW_DRIVER);
    put(f, "sys/bus/pci/devices/0000:5e:00.0/vendor", "0x10de\n");
    put(f, "sys/bus/pci/devices/0000:5e:00.0/class", "0x030200\n");
    put(f, "sys/bus/pci/devices/0000:5e:00.0/numa_node", "1\n");
    put_smi(f,
            "00000000:3B:00.0, NVIDIA H200, Default, Disabled, Enabled\n"
            "00000000:5E:00.0, NVIDIA H200, Default, Disabled, Enabled",
            "00000000:3B:00.0, 0x1");
    put_program(f, "shunt-run",
                "[ $5 = 0 ] || { echo shunt-run: no such device >&2; exit 1; }\n"
                "echo '{\"pci_bus_id\": \"0000:5E:00.0\", \"identity\": \"second\", "
                "\"page_locks\": true, \"fences_files\": true, \"fences_calls\": true}'\n");
    gpus_read(f->root, f->smi, &f->g);
}

static void a_gpu_that_a_variable_hides_has_not_failed(void **state)
{
    static const char *const LISTS[] = {"1", " 1", "GPU-6f1c", "1,7", "1,-1,0", "1,x"};
    struct fixture *f = *state;

    put_two(f);
    for (size_t i = 0; i < SH_ARRAY_LEN(LISTS); i++) {
        char hidden[64];

        checks_fini(&f->k);
        assert_ok(checks_init(&f->k, NULL));
        gpus_read(f->root, f->smi, &f->g);
        gpus_try_cuda(&f->g, f->run, LISTS[i], &f->k);
        snprintf(hidden, sizeof(hidden), "hidden from CUDA by CUDA_VISIBLE_DEVICES=%s", LISTS[i]);
        assert_true(said(f, "note", hidden));
        assert_true(said(f, "ok", "usable; second"));
        assert_true(said(f, "ok", "on NUMA node 1"));
        assert_int_equal(f->k.n[CHECK_NOTE], 1);
        assert_int_equal(f->k.n[CHECK_FAIL], 0);
    }
}

static void a_gpu_that_nothing_hides_has_failed(void **state)
{
    struct fixture *f = *state;

    put_two(f);
    gpus_try_cuda(&f->g, f->run, NULL, &f->k);
    assert_true(said(f, "FAILED", "cannot be used: no such device"));
    assert_int_equal(f->k.n[CHECK_FAIL], 1);
    assert_int_equal(f->k.n[CHECK_NOTE], 0);
    gpus_try_cuda(&f->g, f->run, "0,1", &f->k);
    assert_int_equal(f->k.n[CHECK_FAIL], 2);
    assert_int_equal(f->k.n[CHECK_NOTE], 0);
}

static void a_variable_that_hides_all_is_a_failure(void **state)
{
    static const char *const LISTS[] = {"", "-1", "none", "2", ",0", "18446744073709551616"};
    struct fixture *f = *state;

    put_two(f);
    for (size_t i = 0; i < SH_ARRAY_LEN(LISTS); i++) {
        checks_fini(&f->k);
        assert_ok(checks_init(&f->k, NULL));
        gpus_try_cuda(&f->g, f->run, LISTS[i], &f->k);
        assert_true(said(f, "FAILED", "hides every GPU"));
        assert_int_equal(json_array_size(f->k.list), 1);
    }
}

static void a_gpu_that_a_container_does_not_have_has_not_failed(void **state)
{
    struct fixture *f = *state;

    put_two(f);
    put_smi(f, "00000000:5E:00.0, NVIDIA H200, Default, Disabled, Enabled",
            "00000000:5E:00.0, 0x1");
    judge(f);
    gpus_try_cuda(&f->g, f->run, NULL, &f->k);
    assert_true(said(f, "note", "the driver does not show it here"));
    assert_true(said(f, "ok", "usable; second"));
    assert_int_equal(f->k.n[CHECK_FAIL], 0);
}

static void a_machine_is_read_from_its_files(void **state)
{
    struct fixture *f = *state;
    struct machine m;

    put(f, "proc/meminfo", "MemTotal:        1048576 kB\nMemAvailable:     524288 kB\n");
    put(f, "proc/self/cgroup", "0::/a/b\n");
    put(f, "sys/fs/cgroup/a/memory.max", "268435456\n");
    put(f, "sys/fs/cgroup/a/b/memory.max", "max\n");
    put(f, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    put(f, "sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
    put(f, "sys/devices/system/node/node0/cpulist", "0-1\n");
    put(f, "sys/devices/system/node/node1/cpulist", "2-3\n");
    machine_read(f->root, &m);
    assert_true(m.memory_bytes == 1024 * MIB && m.available_bytes == 512 * MIB);
    assert_true(m.cgroup_bytes == 256 * MIB);
    assert_int_equal(m.numa_nodes, 2);
    machine_judge(&m, false, &f->k);
    assert_true(said(f, "warning", "1.0 GiB, 512 MiB available; cgroups allow 256 MiB"));
    assert_true(said(f, "note", "transparent: never"));
    assert_true(said(f, "warning", "hpet"));
}

static void limits_matter_where_a_gpu_is_used(void **state)
{
    struct fixture *f = *state;
    struct machine m = {.cores = 8,
                        .memory_bytes = 64ull << 30,
                        .cgroup_bytes = MACHINE_UNLIMITED,
                        .locked_bytes = 8 * MIB,
                        .open_files = 1024,
                        .shm_bytes = 64 * MIB,
                        .knows_clock = true,
                        .clock_is_set = true};

    machine_judge(&m, false, &f->k);
    assert_true(said(f, "ok", "limit 8.0 MiB"));
    assert_true(said(f, "warning", "limit 1024"));
    assert_true(said(f, "note", "/dev/shm has 64.0 MiB"));
    machine_judge(&m, true, &f->k);
    assert_true(said(f, "warning", "limit 8.0 MiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_gpu_at_its_best_has_no_remark, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gpu_on_fewer_lanes_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_device_for_one_process_cannot_be_used, setup, teardown),
        cmocka_unit_test_setup_teardown(a_driver_that_is_missing_or_too_old_is_a_failure, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_gpu_that_only_nvidia_smi_sees_is_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(other_devices_of_the_bus_are_no_gpus, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_link_is_named_beside_what_the_bus_carries, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_gpu_that_a_variable_hides_has_not_failed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_gpu_that_nothing_hides_has_failed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_variable_that_hides_all_is_a_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gpu_that_a_container_does_not_have_has_not_failed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_machine_is_read_from_its_files, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_matter_where_a_gpu_is_used, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
