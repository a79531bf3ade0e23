# Every target a person types has a `##` line; `make help` prints them.
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.SUFFIXES:
SHELL := /bin/bash

# ---------------------------------------------------------------- settings
CC      := gcc
SAN     ?=
V       ?=
OPT     ?= -O2
STORIES ?=
SEEDS   ?=
SIM_ARGS ?=
COVERAGE_ARGS ?=
JOBS    ?= $(shell nproc)
BENCH_ARGS ?=
REPLAY_ARGS ?=
DESTDIR ?=
PREFIX  ?= /usr/local
BARE    ?= /var/tmp/shunt-bare
empty   :=
comma   := ,
BUILD   := build$(if $(filter-out gcc,$(CC)),-$(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BACKEND ?= cpu
CXX     := g++
ifeq ($(origin NVCC),undefined)
NVCC    := $(shell command -v nvcc 2>/dev/null)
endif
Q       := $(if $(V),,@)

# Parallel by itself; a sub-make shares the job server of the first.
ifeq ($(MAKELEVEL),0)
ifneq ($(filter-out clean help deps,$(or $(MAKECMDGOALS),help)),)
MAKEFLAGS += -j$(JOBS)
endif
endif

# The code of sanitizers hides bounds from the compiler.
WARN := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wpointer-arith -Wvla \
        -Wwrite-strings -Wno-missing-field-initializers -Werror $(if $(filter gcc,$(CC)),-Wjump-misses-init) \
        $(if $(SAN),$(if $(filter gcc,$(CC)),-Wno-format-truncation))
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
CFLAGS   := -std=c11 -D_GNU_SOURCE $(OPT) -g -fPIC -fvisibility=hidden -MMD -MP -I. -I$(BUILD)/gen \
            $(WARN) $(SANFLAGS)
LDFLAGS  := -Wl,--as-needed -Wl,-z,relro,-z,now $(SANFLAGS)

# ---------------------------------------------------------------- what is built from what
src = $(sort $(foreach d,$(1),$(wildcard $(d)/*.c)))
obj = $(patsubst %.c,$(BUILD)/%.o,$(call src,$(1)))
# The folders that a daemon's rooms.txt names; the daemon's own folder is the top one.
rooms = $(addprefix $(1)/,$(shell sed -nE 's/^([a-z]+): .*/\1/p' $(1)/rooms.txt))

COMMON_LIBS := -ljansson -lgnutls -lpthread -lm
common      := $(BUILD)/libcommon.a
model       := $(BUILD)/libmodel.a
device      := $(BUILD)/libdevice.a
# How an executor finds room, for who only wants to know.
replaces    := $(addprefix $(BUILD)/executor/memory/,residency.o replacement.o arena.o tenure.o)
# What the scheduler's core asks of others, where nobody else is (simulate/core.h).
CORE_WRAP   := $(addprefix -Wl$(comma)--wrap=,session_send session_refuse sched_count dbthread_is_up jobs_train_on)

PROGRAMS := shunt shunt-api shunt-scheduler shunt-executor shunt-worker shunt-import shunt-run shunt-simulate shunt-zoo
BIN      := $(patsubst %,$(BUILD)/bin/%,$(PROGRAMS))
# What measurements and tests ask for beyond a release (tests/lab/README.md): a folder of programs
# as in bin/, two of them other ones.
LAB_OWN  := $(BUILD)/lab/shunt-executor $(BUILD)/lab/shunt-worker
LAB      := $(patsubst %,$(BUILD)/lab/%,$(PROGRAMS))
PLUGINS  := $(BUILD)/lib/shunt-dev-cpu.so $(if $(NVCC),$(BUILD)/lib/shunt-dev-cuda.so)

parts_shunt           := cli $(call rooms,cli)
parts_shunt-api       := api $(call rooms,api)
parts_shunt-scheduler := scheduler $(call rooms,scheduler)
parts_shunt-executor  := executor $(call rooms,executor)
parts_shunt-worker    := executor/worker
parts_shunt-import    := runtime/import
parts_shunt-run       := runtime/run
parts_shunt-simulate  :=
parts_shunt-zoo       := zoo
libs_shunt            := -lcurl -lpq -lturbojpeg -lpng16 -lz
libs_shunt-api        := -lmicrohttpd -lcurl -lnghttp2 -lprotobuf-c -lpq -lz
libs_shunt-scheduler  := -lmicrohttpd -lcurl -lpq
libs_shunt-executor   := -lmicrohttpd -lcurl -ldl
libs_shunt-worker     := -lseccomp -ldl
libs_shunt-import     := -lprotobuf-c -lseccomp
libs_shunt-run        := -lprotobuf-c -lseccomp -ldl
libs_shunt-simulate   := $(CORE_WRAP) -lmicrohttpd -lpq
libs_shunt-zoo        := -lprotobuf-c
lab_shunt-executor    := tests/lab
lab_shunt-worker      := tests/lab/worker
uses_shunt            :=
uses_shunt-api        := $(BUILD)/gen/inference.pb-c.o
uses_shunt-scheduler  :=
uses_shunt-executor   := $(BUILD)/runtime/group.o $(BUILD)/runtime/model/kept.o $(device)
uses_shunt-worker     := $(BUILD)/runtime/group.o $(model) $(device)
uses_shunt-import     := $(model)
uses_shunt-run       := $(BUILD)/runtime/group.o $(model) $(device)
uses_shunt-simulate   := $(addprefix $(BUILD)/,simulate/main.o libsimulate.a libscheduler.a) # benches use more of it
uses_shunt-zoo        := $(model)

# A test may name, on lines of their own, what it needs beyond libcommon.a and linker flags:
#     /* uses: runtime/group.o libmodel.a */
#     /* link: -Wl,--wrap=calloc -ldnnl */
test_line = $(shell sed -nE 's|^/\* $(1): (.*) \*/$$|\1|p' tests/unit/$(2).c)
test_uses = $(addprefix $(BUILD)/,$(call test_line,uses,$(1)))
UNIT_SRC := $(sort $(wildcard tests/unit/test_*.c))
UNIT_BIN := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(UNIT_SRC))
DEV_SRC  := $(sort $(wildcard tests/device/test_*.c))
DEV_BIN  := $(patsubst tests/device/%.c,$(BUILD)/device-tests/%,$(DEV_SRC))
dev_uses  = $(addprefix $(BUILD)/,$(shell sed -nE 's|^/\* uses: (.*) \*/$$|\1|p' tests/device/$(1).c))
DB_BIN   := $(patsubst tests/db/%.c,$(BUILD)/db-tests/%,$(sort $(wildcard tests/db/test_*.c)))
db_line   = $(shell sed -nE 's|^/\* $(1): (.*) \*/$$|\1|p' tests/db/$(2).c)
db_uses   = $(addprefix $(BUILD)/,$(call db_line,uses,$(1)))

.SECONDEXPANSION:

$(common): $(call obj,common)
$(model): $(call obj,runtime/model) $(BUILD)/gen/onnx.pb-c.o
$(device): $(call obj,runtime/device runtime/pack)
$(BUILD)/libapi.a: $(filter-out %/main.o,$(call obj,$(parts_shunt-api))) $(uses_shunt-api)
$(BUILD)/libscheduler.a: $(filter-out %/main.o,$(call obj,$(parts_shunt-scheduler)))
$(BUILD)/libcli.a: $(filter-out %/main.o,$(call obj,$(parts_shunt)))
$(BUILD)/libsimulate.a: $(filter-out %/main.o,$(call obj,simulate)) $(replaces)
$(BUILD)/%.a:
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/%.o: %.c
	$(Q)mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(CC) $(CFLAGS) -c $< -o $@

# It embeds these files (api/console/files.def).
$(BUILD)/api/console/console.o: $(foreach e,html css js svg,$(wildcard api/console/*.$(e)))

MIGRATIONS := $(wildcard migrations/*.sql)
$(BUILD)/common/db_schema.o: CFLAGS += -DMIGRATIONS=$(words $(MIGRATIONS))
$(BUILD)/common/db_schema.o: $(MIGRATIONS)
$(BUILD)/common/conf.o: CFLAGS += -DSHUNT_VERSION='"$(VERSION)"'

# onnx.proto comes from Debian's libonnx-dev, the other is ours; the generated code is never committed.
$(BUILD)/gen/onnx.pb-c.c: /usr/include/onnx/onnx.proto
	$(Q)mkdir -p $(@D)
	$(Q)protoc-c --proto_path=/usr/include/onnx --c_out=$(@D) $<
$(BUILD)/gen/inference.pb-c.c: api/grpc/inference.proto
	$(Q)mkdir -p $(@D)
	$(Q)protoc-c --proto_path=api/grpc --c_out=$(@D) $<
$(BUILD)/gen/%.pb-c.h: $(BUILD)/gen/%.pb-c.c
	@:
$(BUILD)/gen/%.pb-c.o: $(BUILD)/gen/%.pb-c.c
	$(Q)$(CC) -std=c11 -O2 -g -fPIC -I$(BUILD)/gen $(SANFLAGS) -c $< -o $@
$(call obj,runtime/model) $(call obj,zoo): | $(BUILD)/gen/onnx.pb-c.h
$(call obj,api/grpc) $(BUILD)/tests/unit/test_grpc.o: | $(BUILD)/gen/inference.pb-c.h

$(BIN): $(BUILD)/bin/%: $$(call obj,$$(parts_$$*)) $$(uses_$$*) $(common)
	$(Q)mkdir -p $(@D)
	$(if $(V),,@echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(libs_$*) $(COMMON_LIBS)

$(LAB_OWN): $(BUILD)/lab/%: $$(filter-out $$(BUILD)/executor/main.o $$(BUILD)/executor/worker/main.o,$$(call obj,$$(parts_$$*) $$(lab_$$*))) $$(uses_$$*) $(common)
	$(Q)mkdir -p $(@D)
	$(if $(V),,@echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(libs_$*) $(COMMON_LIBS)
$(filter-out $(LAB_OWN),$(LAB)): $(BUILD)/lab/%: $(BUILD)/bin/%
	$(Q)mkdir -p $(@D)
	$(Q)ln -f $< $@

dev_common := $(addprefix $(BUILD)/runtime/device/,op.o lane.o prepared.o) $(BUILD)/runtime/pack/pack.o

# At every registration, of all weights.
$(call obj,runtime/pack): CFLAGS += -O3

# Loops of our own: worth vectorising.
$(call obj,runtime/device/cpu): CFLAGS += -O3
$(BUILD)/lib/shunt-dev-cpu.so: $(call obj,runtime/device/cpu) $(dev_common) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(if $(SAN),,-Wl,-z,defs) -shared -o $@ $^ -ldnnl -lgomp $(COMMON_LIBS)

# No release has these two. What the tests compare with: the cpu device, which computes in double if
# asked to. And a device of scripted durations and failures.
ORACLE := $(BUILD)/lib/shunt-dev-oracle.so
$(call obj,tests/device/oracle): CFLAGS += -O3
$(ORACLE): $(filter-out %/cpu_ops.o,$(call obj,runtime/device/cpu)) $(call obj,tests/device/oracle) $(dev_common) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(if $(SAN),,-Wl,-z,defs) -shared -o $@ $^ -ldnnl -lgomp $(COMMON_LIBS)
FAKE := $(BUILD)/lib/shunt-dev-fake.so
$(FAKE): $(call obj,tests/device/fake) $(dev_common) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(if $(SAN),,-Wl,-z,defs) -shared -o $@ $^ $(COMMON_LIBS)

# In place of the driver's library for management, with a GPU that does not exist.
NVML := $(BUILD)/nvml/libnvidia-ml.so.1
$(NVML): $(BUILD)/tests/nvml/nvml.o
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -shared -o $@ $^
$(BUILD)/tests/test_gpu_watch: | $(NVML)

# ---------------------------------------------------------------- the CUDA back end
# Built where nvcc is; `make NVCC=` leaves it out. Python's packages have cuDNN and cuBLAS in folders
# of their own: CUDNN_HOME=.../nvidia/cudnn. CUDA_ARCHS: machine code (sm_90a), or code that the
# driver compiles for later devices (compute_90); 90 is the lowest.
ifneq ($(NVCC),)
CUDA_HOME   ?= $(shell $(NVCC) --dryrun -x cu -c /dev/null 2>&1 | sed -n 's|^.. _HERE_=\(.*\)/bin$$|\1|p')
CUDA_HOME   := $(CUDA_HOME)
CUDNN_HOME  ?= $(CUDA_HOME)
CUBLAS_HOME ?= $(CUDA_HOME)
CUDA_ARCHS  ?= sm_90a compute_90
cuda_lib     = $(firstword $(wildcard $(foreach d,lib64 lib lib/x86_64-linux-gnu,$(1)/$(d)/$(2).so $(1)/$(d)/$(2).so.*)))
cuda_obj    := $(call obj,runtime/device/cuda) \
               $(patsubst %.cu,$(BUILD)/%.cu.o,$(sort $(wildcard runtime/device/cuda/*.cu)))
NVCCFLAGS   := -O3 -lineinfo -std=c++17 -I. -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
               $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(lastword $(subst _, ,$(a))),code=$(a))
# The driver's library is not there where programs are built; its stub says what it will have.
CUDA_LIBS   := $(call cuda_lib,$(CUDA_HOME),libcudart) $(call cuda_lib,$(CUDNN_HOME),libcudnn) \
               $(call cuda_lib,$(CUBLAS_HOME),libcublasLt) \
               $(firstword $(wildcard $(foreach d,lib64 lib,$(CUDA_HOME)/$(d)/stubs/libcuda.so)))
CUDA_RPATH  := $(subst $(empty) ,:,$$ORIGIN/../lib/cuda $(patsubst %/,%,$(sort $(dir $(filter-out \
               %/stubs/libcuda.so,$(CUDA_LIBS))))))

$(call obj,runtime/device/cuda): CFLAGS += \
    $(patsubst %,-isystem %/include,$(sort $(CUDA_HOME) $(CUDNN_HOME) $(CUBLAS_HOME)))
$(BUILD)/%.cu.o: %.cu
	$(Q)mkdir -p $(@D)
	$(if $(V),,@echo "  NVCC  $<")
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(cuda_obj): | cuda-is-there
cuda-is-there:
	@for f in $(CUDA_HOME)/include/cuda.h $(CUDNN_HOME)/include/cudnn.h \
	    $(CUBLAS_HOME)/include/cublasLt.h; do [ -e $$f ] || { \
	    echo "make: there is no $$f; name the folders: make CUDA_HOME=... CUDNN_HOME=..." \
	        "CUBLAS_HOME=...; or leave the CUDA back end out: make NVCC=" >&2; exit 1; }; done

$(BUILD)/lib/shunt-dev-cuda.so: $(cuda_obj) $(dev_common) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS) $(if $(SAN),,-Wl,-z,defs) -shared -o $@.new $^ $(CUDA_LIBS) \
	    -Wl,-rpath,'$(CUDA_RPATH)' $(COMMON_LIBS) && mv $@.new $@ # a test may copy the folder
.PHONY: cuda-is-there
endif

# ---------------------------------------------------------------- targets for people
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install what is missing (Debian packages; needs root or sudo)
	@deploy/deps.sh

build: deps ## every program; the CUDA back end too where nvcc is present
	@$(MAKE) --no-print-directory all
all: $(BIN) $(PLUGINS)
	@: # not "Nothing to be done"

clean: ## remove what was built, and .shunt/ if the demo made it
	$(Q)if [ -e .shunt/made-by-demo ] && [ -x build/bin/shunt ]; then \
	    build/bin/shunt down --purge --quiet --state-dir .shunt; \
	elif ls .shunt/run/*.pid >/dev/null 2>&1; then \
	    echo "clean: a system runs in .shunt/; stop it first: build/bin/shunt down" >&2; exit 1; \
	elif [ -e .shunt ]; then \
	    echo "clean: .shunt/ is left; to remove it: make build, then build/bin/shunt down --purge"; \
	fi
	$(Q)rm -rf build build-*

demo: build ## the whole system tells its story; the summary is in .shunt/demo.json
	@deploy/demo.sh

lab: all $(LAB) ## the programs as tests and measurements want them, in build/lab (tests/lab/README.md)
	@:

e2e: all $(LAB) $(ORACLE) $(FAKE) $(NVML) $(DEV_BIN) gpu-benches ## stories with real daemons, several at a time; STORIES names some
	@SOAK_SECONDS=$${SOAK_SECONDS:-15} tests/e2e/run.sh $(STORIES)

soak: all ## 16 clients beside a training job for a minute (SOAK_SECONDS); prints latencies and memory
	@tests/e2e/test_soak.py -v

# Compiled by clang, with what libFuzzer needs: `make fuzz-targets` calls itself for that.
FUZZ_SAN := fuzzer-no-link,address,undefined
FUZZ_SRC := $(sort $(wildcard tests/fuzz/targets/*.c))
FUZZ_BIN := $(patsubst tests/fuzz/targets/%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))
fuzz_line = $(shell sed -nE 's|^/\* $(1): (.*) \*/$$|\1|p' tests/fuzz/targets/$(2).c)
$(FUZZ_BIN): $(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/targets/%.o $$(addprefix $(BUILD)/,$$(call fuzz_line,uses,$$*)) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(call fuzz_line,link,$*) $(COMMON_LIBS)
fuzz-programs: $(FUZZ_BIN)
	@tests/fuzz/targets.sh $(or $(SECONDS),60) $(FUZZ_BIN)

fuzz-short: ## parsers of what strangers send, by libFuzzer, for SECONDS in all (60)
	@$(MAKE) --no-print-directory NVCC= CC=clang OPT=-O1 SAN=$(FUZZ_SAN) fuzz-programs

fuzz: fuzz-short ## fuzz-short, then mutated models, data and requests into programs with sanitizers; COUNT of each, SEED, KEEP=FOLDER
	@$(MAKE) --no-print-directory NVCC= OPT=-O1 SAN=address,undefined build
	@set -e; for part in mutations datasets served; do tests/fuzz/$$part.py --count $(or $(COUNT),5000) \
	    --seed $(or $(SEED),1) $(if $(KEEP),--keep $(KEEP)/$$part); done

test: deps ## all checks: lint, unit, device, database, golden, protocols, end to end
	+@tests/all.sh # the plus: its makes share the job server, and build with all cores

# All that the steps of tests/all.sh run from build/.
tested: lab benches $(ORACLE) $(FAKE) $(NVML) $(UNIT_BIN) $(DEV_BIN) $(DB_BIN) $$(SIM)

# make coverage names an object here, which counts the steps of lives (tests/unit/life_note.c).
LIFE_NOTE ?=
unit: $(UNIT_BIN) ## unit tests; no GPU, no database
	@tests/run.sh -j $(JOBS) $(filter %/test_zoo,$(UNIT_BIN)) $(filter-out %/test_zoo,$(UNIT_BIN))

$(UNIT_BIN): $(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $$(call test_uses,$$*) $(LIFE_NOTE) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(if $(LIFE_NOTE),-Wl$(comma)--wrap=sh_life_step) -o $@ $^ $(call test_line,link,$*) $(COMMON_LIBS) -lcmocka

device-tests: $(DEV_BIN) $(BUILD)/lib/shunt-dev-$(BACKEND).so $(if $(filter cpu,$(BACKEND)),$(ORACLE)) ## every operation against double precision; BACKEND=cpu or cuda
	@BACKEND=$(BACKEND) $(if $(SAN),THREADS=1) tests/run.sh $(if $(filter cpu,$(BACKEND)),-j $(JOBS)) $(DEV_BIN)
	@$(if $(filter cpu,$(BACKEND)),$(if $(SAN),THREADS=1) BACKEND=oracle PRECISION=fp64 tests/run.sh -j $(JOBS) \
	    $(filter-out %/test_mem,$(DEV_BIN)))

$(DEV_BIN): $(BUILD)/device-tests/%: $(BUILD)/tests/device/%.o $(BUILD)/tests/device/dev_test.o $$(call dev_uses,$$*) $(device) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(COMMON_LIBS) -ldl -lcmocka

db-tests: $(DB_BIN) ## statements and transactions against a throw-away PostgreSQL
	@tests/run.sh -j $(JOBS) -w 'tests/pg.sh run' $(DB_BIN)

$(DB_BIN): $(BUILD)/db-tests/%: $(BUILD)/tests/db/%.o $$(call db_uses,$$*) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call db_line,link,$*) $(COMMON_LIBS) -lcmocka

# Opens the back end beside it.
$(BUILD)/tests/test_transmit $(BUILD)/tests/test_space $(BUILD)/tests/test_lower $(BUILD)/tests/test_autodiff \
    $(BUILD)/tests/test_autodiff_attn $(BUILD)/tests/test_attn_views $(BUILD)/tests/test_types: | $(BUILD)/lib/shunt-dev-cpu.so
$(BUILD)/tests/test_autodiff $(BUILD)/tests/test_autodiff_attn $(BUILD)/tests/test_turn: | $(ORACLE)

# ---------------------------------------------------------------- the simulation
# The real code of the daemons runs in one process (tests/sim/). Each daemon becomes one object that
# shows only what its file of symbols names, for two of them may have a function of one name. loop.c
# and wire.c of tests/sim stand before libcommon.a's, so that theirs are taken; what is wrapped are
# calls to the system, and to what reads clocks and devices.
SIM       := $(BUILD)/sim/sim
SIM_WRAP  := kill waitpid socketpair write pwrite fsync rename unlink posix_fallocate flock open readlink \
             mkdir link \
             sh_random sh_log sh_log_err sh_life_step
sim: $(SIM) ## the whole system in virtual time, with faults by seed; SEEDS=FIRST-LAST, SIM_ARGS
	@$< $(if $(SEEDS),--seeds $(SEEDS)) $(SIM_ARGS)

sim-check: $(SIM) ## the simulation as CI runs it: all seeds that ever failed, and new ones for SIM_SECONDS
	@tests/sim/check.sh

SIM_PARTS :=
# simulation: the scheduler. Each part is one object whose names are its own, but for what the
# simulator calls; what it asks of the system and of the database comes from tests/sim.
sim_sched := $(filter-out %/main.o %/dbthread.o %/dbqueue.o %/job.o %/lines.o $(BUILD)/scheduler/database/store%.o, \
             $(call obj,$(parts_shunt-scheduler)))
sim_link  := $(addprefix $(BUILD)/api/,infer/link.o infer/link_ask.o infer/link_data.o request/slab.o spec/jobctl.o)
SIM_PARTS += $(BUILD)/sim/scheduler.o $(BUILD)/sim/link.o $(addprefix $(BUILD)/scheduler/,database/dbqueue.o decide/job.o decide/lines.o)
sim_part = $(Q)mkdir -p $(@D) && ld -r -o $@.all $(filter %.o,$^) && \
    objcopy $(addprefix --keep-global-symbol=,$(1)) $(addprefix --redefine-sym ,$(2)) $@.all $@
$(BUILD)/sim/scheduler.o: $(sim_sched) Makefile
	$(call sim_part,sched_new sched_free execs_find exec_is_up homes_has jobs_pool_fault requests_are_timed SCHED_CONF REQUEST_LIFE VERSION_LIFE,nanosleep=sim_nanosleep sh_random=sim_bytes sh_metric_add=sim_count)
$(BUILD)/sim/link.o: $(sim_link) Makefile
	$(call sim_part,link_start link_open link_ready link_is_up link_cancel link_hint link_hint_load link_ask slab_new slab_take slab_release slab_at \
	    jobctl_find,pthread_create=sim_thread sh_random=sim_bytes)

# simulation: the executor. Its objects are compiled for it, with small blocks of device memory.
sim_exec   := $(patsubst %.c,$(BUILD)/sim/%.o,$(filter-out %/main.c %/disk.c %/transfer.c,$(call src,$(parts_shunt-executor) tests/lab)) \
              $(call src,runtime/device) runtime/group.c runtime/model/kept.c runtime/pack/pack.c)
sim_blocks := -include tests/sim/blocks.h
# What the device is, and all that an executor can be refused (tests/sim/shortage.c).
sim_exec_wrap := dev_lib_open dev_mem_measure sh_importer_of malloc calloc realloc disk_submit sh_strdup sh_asprintf \
                 sh_grow sh_json_dump sh_timer_add sh_io_add sh_loop_child sh_spawn sh_shm_create \
                 sh_shm_map sh_shm_show sh_wire_new sh_wire_send_fds
sim_exec_wrap += residency_alloc residency_place # tests/sim/oracles_exec.c looks at what they take
SIM_PARTS  += $(BUILD)/sim/executor.o
$(BUILD)/sim/%.o: %.c
	$(Q)mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $< (sim)")
	$(Q)$(CC) $(CFLAGS) $(sim_blocks) -c $< -o $@
$(BUILD)/sim/executor.o: $(sim_exec) tests/sim/executor.syms Makefile
	$(Q)$(LD) -r $(sim_exec_wrap:%=--wrap=%) -o $@ $(sim_exec)
	$(Q)objcopy --keep-global-symbols=tests/sim/executor.syms $@

$(call obj,tests/sim): CFLAGS += $(sim_blocks)
$(BUILD)/tests/sim/content.o: CFLAGS += -O3 # it looks at each word of memory, several at a time
$(SIM): $(call obj,tests/sim) $(SIM_PARTS) $(common)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(SIM_WRAP:%=-Wl,--wrap=%) -o $@ $^ -lmicrohttpd -lcurl -ldl $(COMMON_LIBS)

recipes: ## what the READMEs say of adding a quota field, training option, job state, route, operation
	@tests/recipes/check.sh

# A process of the simulation ends without exit(): main.c dumps what was counted, if this has it.
COVERED_TESTS := $(shell grep -lE '^/\* uses:.* (executor/(memory|pool|models|runs|training|batch)|scheduler/(decide|peers|models|jobs|pass))/' $(UNIT_SRC))
coverage-programs: $(SIM) $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(COVERED_TESTS))
coverage: ## branch coverage of the cores by unit tests and simulation; SEEDS, COVERAGE_ARGS=--lines
	@$(MAKE) --no-print-directory NVCC= BUILD=build-coverage OPT=-O0 LIFE_NOTE=build-coverage/tests/unit/life_note.o \
	    SANFLAGS='--coverage -Wl,-u,__gcov_dump' coverage-programs
	@tests/coverage.py build-coverage $(if $(SEEDS),--seeds $(SEEDS)) $(COVERAGE_ARGS)

golden: $(BUILD)/bin/shunt-run $(BUILD)/lib/shunt-dev-cpu.so $(ORACLE) ## shunt-run against PyTorch's numbers; GOLDENS names their folder
	@SHUNT_RUN=$(abspath $<) /usr/bin/python3 tests/golden/check.py

bench: $(BUILD)/bench/group $(BUILD)/bench/residency $(LAB) $(PLUGINS) ## switch latency, what grouping and finding room cost; wants a quiet machine
	$(Q)$<
	$(Q)$(BUILD)/bench/residency
	$(Q)SHUNT_BIN=$(abspath $(BUILD)/bin) bench/switch.py $(BENCH_ARGS)

$(BUILD)/bench/group: $(BUILD)/bench/group.o $(BUILD)/runtime/group.o $(common)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(COMMON_LIBS)
$(BUILD)/bench/pack: $(BUILD)/bench/pack.o $(device) $(common)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(COMMON_LIBS) -ldl
$(BUILD)/bench/residency: $(BUILD)/bench/residency.o $(replaces) $(common)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(COMMON_LIBS)
$(BUILD)/bench/tier: $(BUILD)/bench/tier.o $(replaces) $(common)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(COMMON_LIBS) -lm
$(BUILD)/bench/pass: $(addprefix $(BUILD)/bench/,pass.o pass_jobs.o pass_leader.o) $(BUILD)/libsimulate.a $(BUILD)/libscheduler.a $(common)
	$(Q)$(CC) $(LDFLAGS) $(CORE_WRAP) -Wl,--wrap=sched_submit -o $@ $^ $(libs_shunt-scheduler) $(COMMON_LIBS)
$(BUILD)/bench/replay: $(call obj,bench/sim) $(BUILD)/tests/sim/profile.o $(BUILD)/libsimulate.a $(BUILD)/libscheduler.a $(common)
	$(Q)$(CC) $(LDFLAGS) $(CORE_WRAP) -o $@ $^ $(libs_shunt-scheduler) $(COMMON_LIBS)
$(BUILD)/bench/wire: $(BUILD)/bench/wire.o $(common)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(COMMON_LIBS)
$(BUILD)/bench/copiers: $(BUILD)/bench/copiers.o $(BUILD)/api/request/copiers.o $(common)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(COMMON_LIBS)
$(BUILD)/bench/arrivals: $(BUILD)/bench/arrivals.o
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lm
$(BUILD)/bench/http: $(BUILD)/bench/http.o
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lmicrohttpd -lpthread

BENCHES := $(addprefix $(BUILD)/bench/,group pack residency tier pass replay wire copiers arrivals http)
benches: $(BENCHES) ## the programs of all measurements
	@:
gpu-benches: $(addprefix $(BUILD)/bench/,arrivals http) # those that bench/gpu starts
	@:

scale: $(BUILD)/bench/pass ## what an event costs and what a leader holds, 10 to 10,000 GPUs: docs/scale.md
	@bench/scale.py --program $<

replay: $(BUILD)/bench/replay ## traces by the daemons' decisions and other policies: docs/replay.md (bench/sim/README.md)
	@bench/sim/replay.py --replay $< $(REPLAY_ARGS)

bundle: ## one relocatable folder for hosts without package access, and its .tar.xz, in build/bundle
	$(Q)rm -f $(BUILD)/common/conf.o # it has the version
	@$(MAKE) --no-print-directory build docs-site
	@deploy/bundle.sh $(BUILD) $(VERSION)

bundle-tests: ## beside it: device tests, the checker of goldens and the benches, for a GPU host
	@$(MAKE) --no-print-directory lab $(ORACLE) $(DEV_BIN) gpu-benches
	@deploy/bundle.sh $(BUILD) $(VERSION) --tests
bundle-tests: | $(filter bundle,$(MAKECMDGOALS))

install: all ## programs, man pages, completion, units of systemd: DESTDIR, PREFIX (/usr/local), UNITDIR; uninstall takes them away
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' deploy/install.sh $(BUILD)
uninstall: all
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' deploy/install.sh $(BUILD) --remove

deb: ## packages for Debian in build/deb: shunt-api, -scheduler, -executor, -cli, -common, and -cuda if it is compiled
	$(Q)rm -f $(BUILD)/common/conf.o # it has the version
	@$(MAKE) --no-print-directory build docs-site
	@deploy/deb.sh $(BUILD) $(VERSION)

deb-check: all ## installs them in a bare Debian, kept in BARE (/var/tmp/shunt-bare), and tells the demo's story there; root, network
	@command -v debootstrap >/dev/null || deploy/deps.sh debootstrap
	@SHUNT_BARE_ROOT=$(BARE) tests/e2e/test_deb.py -v

# The last commit before the Python client, with which this release begins.
OLD ?= 480f9ee1
upgrade-test: all ## upgrades a system of the commit OLD, with jobs in every state, to this one; as long as a build of OLD and three minutes
	@tests/upgrade/run.sh $(OLD)

docker-check: all ## executes every RUN of the Dockerfile in that bare Debian; as long as a build takes
	@command -v debootstrap >/dev/null || deploy/deps.sh debootstrap
	@SHUNT_BARE_ROOT=$(BARE) tests/e2e/test_docker.py -v

wheel: ## the Python client, build/python/shunt-*.whl (python/README.md); takes what it needs to build from PyPI
	@$$(tests/venv.sh) -m pip wheel --quiet --no-deps --no-build-isolation -w $(BUILD)/python python/

spin: ## models of the protocols, every order of events; and that each planted mutation is found
	@tests/protocols/check.sh

lint: ## layers, banned calls, sizes, format, words, dashboards, docs, shell
	@tests/lint/all.sh

dashboards: ## dashboards/grafana/*.json from dashboards/panels.py
	@dashboards/make.py

docs: all ## print the tables of docs/ (api, cli, config, metrics, operators) from the programs
	@docs/print.sh docs

docs-site: deps ## all pages as HTML in build/docs-site, by Debian's mkdocs; shunt-api sends them under /docs
	@docs/site.sh $(BUILD)/docs-site

fmt: ## clang-format on every source file
	@git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

.PHONY: help dashboards deps build all clean demo lab recipes e2e soak fuzz fuzz-short fuzz-programs test unit device-tests db-tests golden spin lint docs docs-site upgrade-test fmt bench benches gpu-benches replay scale \
        sim sim-check coverage coverage-programs bundle bundle-tests install uninstall deb deb-check docker-check wheel
-include $(shell find build* -path '*/mutants' -prune -o -path '*/recipes' -prune -o -name '*.d' -print 2>/dev/null)
