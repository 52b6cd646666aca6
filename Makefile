# ASTRA: one Makefile for everything. `make help` lists the targets, which are the lines that start with two hashes.
.DELETE_ON_ERROR:
# Objects of the programs are kept: make would take them for steps in between, remove them and compile them again.
.SECONDARY:
SHELL := /bin/bash

ifeq ($(origin CC),default)
CC := gcc
endif
BUILD ?= build
# The programs look for the bundled models and texts beside the folder they were built in, and the tests name it from here.
# `make clean` removes it whole: no folder of another name is taken for it.
ifneq ($(words $(BUILD)) $(notdir $(filter build build-%,$(BUILD))),1 $(BUILD))
$(error BUILD=$(BUILD): build or build-NAME is needed, a folder in the source tree (BUILD=build-clang))
endif
PREFIX ?= /usr/local
CFLAGS ?= -O3 -g
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Werror=implicit-function-declaration
ifdef CI
WARNINGS += -Werror
endif
# Where Fedora has OpenBLAS's headers, perhaps since a moment ago ($(DEPS)); elsewhere there is no such folder, and nothing is looked for in it.
OPENBLAS_INCLUDE = -isystem /usr/include/openblas
# A product and a sum become one multiply-add only where a kernel says so: softmax takes the maximum off scale * score as rounded. gcc does so
# with -std=c11 alone, clang does not.
ALL_CFLAGS = -std=c11 -ffp-contract=off -D_GNU_SOURCE $(WARNINGS) -Isrc $(OPENBLAS_INCLUDE) -fno-math-errno -fno-trapping-math -pthread $(CFLAGS) $(SANITIZE)
ALL_LDFLAGS = -pthread -Wl,--as-needed $(LDFLAGS) $(SANITIZE)
LIBS = -lopenblas -lpng $(IMAGE_LIBS) -lcsv -ljansson -lcurl -larchive -lz -lssl -lcrypto -lpcre2-8 -lxxhash -lmicrohttpd -ledit -lm

# V=1 shows whole commands.
Q := $(if $(V),,@)
say = @$(if $(V),:,echo "  $(1)")
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Targets that build much hand it to a second make, parallel even when this one is not.
PARALLEL_MAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

# Goals that hand their work to another make, or remove what was built, would work in one folder at once: make -j clean all. So they come one
# after another in the order given; the makes that they start have other goals and stay parallel.
ONE_AT_A_TIME := all check test test-kernels asan check-asan tsan arm64-test fuzz bench demo install uninstall deps clean
ifneq ($(word 2,$(MAKECMDGOALS)),)
ifneq ($(filter $(ONE_AT_A_TIME),$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif
endif

PROGRAMS := $(patsubst src/cli/%.c,$(BUILD)/bin/%,$(wildcard src/cli/astra-*.c))
CLI_SHARED := $(patsubst src/%.c,$(BUILD)/float/%.o,$(filter-out $(wildcard src/cli/astra-*.c),$(wildcard src/cli/*.c))) $(BUILD)/sources-cli

## all: build the programs into build/bin
.PHONY: all
all:
	+@$(PARALLEL_MAKE) programs

.PHONY: programs
programs: $(PROGRAMS)

## help: this list
.PHONY: help
help:
	@sed -n 's/^## \([^:]*\): */\1\t/p' Makefile | while IFS=$$'\t' read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done
	@echo "Variables: BUILD=NAME (a folder here)  CC=gcc|clang  CFLAGS='-O3 -g'  CI=1 (warnings are errors)  V=1 (show commands)  FUZZ_SECONDS=20  PREFIX=DIR"

## deps: install what is missing, through the system's package manager
.PHONY: deps
deps:
	@CC='$(CC)' tools/deps.sh install
	@mkdir -p $(dir $(DEPS))
	@touch $(DEPS) # so that the next build looks for what is optional again

# Asked once for each build folder; everything compiled comes after it.
DEPS := $(BUILD)/deps.checked
$(DEPS): tools/deps.sh
	@mkdir -p $(@D)
	@CC='$(CC)' tools/deps.sh install
	@touch $@

# Make compares times alone. What it cannot see change stands in files that are written only where their content is another: how everything is
# compiled, with a sum over the lines here that say so, but not the packages that were found; which sources each folder has, as a library would keep what was
# removed; and the commit that results of experiments name, none outside of a git checkout, and also where another user runs make than owns
# the checkout (su -c 'make install').
FOLDERS := base autograd vq nn data train infer serve
SOURCES := $(sort $(shell find src/ -name '*.c'))
PAGE_FILES := $(sort $(wildcard src/serve/page/*))
COMMIT := $(shell [ -e .git ] && git -c safe.directory='$(CURDIR)' describe --always --dirty --exclude='*' 2>/dev/null)
FLAG_LINES := $(shell grep -e FLAGS -e LIBS $(firstword $(MAKEFILE_LIST)) | cksum)
now_flags = $(CC) $(ALL_CFLAGS) $(LDFLAGS) $(FLAG_LINES)
now_page = $(PAGE_FILES)
now_commit = $(COMMIT)
$(foreach folder,$(FOLDERS) cli,$(eval now_sources-$(folder) = $(filter src/$(folder)/%,$(SOURCES))))
differ = $(subst $(1),,$(2))$(subst $(2),,$(1))
define noted
$(BUILD)/$(1): $(if $(call differ,$(now_$(1)),$(file <$(BUILD)/$(1))),.FORCE)
	@mkdir -p $$(@D)
	@echo '$$(subst ','\'',$$(now_$(1)))' >$$@
endef
$(foreach name,flags page commit $(addprefix sources-,$(FOLDERS) cli),$(eval $(call noted,$(name))))
.PHONY: .FORCE
.FORCE:

# ---- Objects and one library for each folder, in two builds: real = float and real = double --------------------------------------

$(BUILD)/float/%.o: src/%.c $(BUILD)/flags | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(ALL_CFLAGS) $(FILE_FLAGS) -MMD -MP -c $< -o $@
$(BUILD)/double/%.o: src/%.c $(BUILD)/flags | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC $< (double))
	$(Q)$(CC) $(ALL_CFLAGS) $(FILE_FLAGS) -DASTRA_DOUBLE -MMD -MP -c $< -o $@

# Architecture flags belong to these files only; the table in kernels.c picks at run time.
# (The compiler may be installed later in this very run: then the machine is asked.)
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null || uname -m)
ifneq (,$(filter x86_64% amd64%,$(MACHINE)))
%/kernels_avx2.o: FILE_FLAGS := -mavx2 -mfma -mf16c
%/kernels_avx512.o: FILE_FLAGS := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512
%/lowbit_avx2.o: FILE_FLAGS := -mavx2 -mfma -mf16c
%/lowbit_vnni.o: FILE_FLAGS := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mprefer-vector-width=512
%/product_bf16.o %/product_packed.o: FILE_FLAGS := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mfma -mprefer-vector-width=512
%/nearest_packed.o: FILE_FLAGS := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mprefer-vector-width=512
else ifneq (,$(filter aarch64% arm64%,$(MACHINE)))
%/lowbit_neon.o: FILE_FLAGS := -march=armv8.2-a+dotprod
endif

%/cli/bench_accuracy.o: FILE_FLAGS := -DASTRA_COMMIT='"$(COMMIT)"'
$(BUILD)/float/cli/bench_accuracy.o $(BUILD)/double/cli/bench_accuracy.o: $(BUILD)/commit

# MPI is built in where its compiler wrapper names its library (its headers may be where the compiler looks anyway). It may be installed
# later in this very run: it is asked when the first recipe needs it, and what depends on it is compiled again after each look for packages.
export PATH := $(PATH):/usr/lib64/openmpi/bin
MPI_FLAGS = $(eval MPI_FLAGS := $$(shell PATH='$(PATH)' mpicc --showme:compile 2>/dev/null))$(MPI_FLAGS)
MPI_LIBS = $(eval MPI_LIBS := $$(shell PATH='$(PATH)' mpicc --showme:link 2>/dev/null))$(MPI_LIBS)
MPI_OBJECTS := $(foreach file,train/ranks,$(BUILD)/float/$(file).o $(BUILD)/double/$(file).o)
$(MPI_OBJECTS): FILE_FLAGS = $(if $(MPI_LIBS),-DASTRA_MPI $(MPI_FLAGS))
$(MPI_OBJECTS): $(DEPS)
LIBS += $(MPI_LIBS)

# What reads WebP, TIFF (4.5 or later) and EXIF is used where its header is: asked and compiled again likewise.
HASH := \#
HAS = printf '$(HASH)include <%s>\n%s\n' $(1) | $(CC) -x c -fsyntax-only - 2>/dev/null && echo $(2)
ASK_FOR_EXTRAS = $(call HAS,libexif/exif-data.h '',EXIF exif); $(call HAS,webp/decode.h '',WEBP webp); \
  $(call HAS,tiffio.h 'TIFFOpenOptions *options;',TIFF tiff)
IMAGE_EXTRAS = $(eval IMAGE_EXTRAS := $$(shell $$(ASK_FOR_EXTRAS)))$(IMAGE_EXTRAS)
IMAGE_LIBS = $(addprefix -l,$(filter exif webp tiff,$(IMAGE_EXTRAS)))
IMAGE_OBJECTS := $(BUILD)/float/data/image_formats.o $(BUILD)/double/data/image_formats.o
$(IMAGE_OBJECTS): FILE_FLAGS = $(addprefix -DASTRA_,$(filter EXIF WEBP TIFF,$(IMAGE_EXTRAS)))
$(IMAGE_OBJECTS): $(DEPS)

# oneDNN 2 multiplies where its header is, else OpenBLAS alone; version 3 has other functions.
ONEDNN = $(eval ONEDNN := $$(shell $$(call HAS,dnnl.h 'dnnl_matmul_desc_t product;',ONEDNN)))$(ONEDNN)
ONEDNN_OBJECTS := $(BUILD)/float/autograd/kernels/onednn.o $(BUILD)/double/autograd/kernels/onednn.o
$(ONEDNN_OBJECTS): FILE_FLAGS = $(if $(ONEDNN),-DASTRA_ONEDNN)
$(ONEDNN_OBJECTS): $(DEPS)
LIBS += $(if $(ONEDNN),-ldnnl -lgomp)

# Workers are found through Avahi where its client library is.
AVAHI = $(eval AVAHI := $$(shell $$(call HAS,avahi-client/client.h '',AVAHI)))$(AVAHI)
AVAHI_OBJECTS := $(BUILD)/float/infer/cluster/discovery.o $(BUILD)/double/infer/cluster/discovery.o
$(AVAHI_OBJECTS): FILE_FLAGS = $(if $(AVAHI),-DASTRA_AVAHI)
$(AVAHI_OBJECTS): $(DEPS)
LIBS += $(if $(AVAHI),-lavahi-client -lavahi-common)

# Who may use whom, as link order: upper ones first.
uses_base := base
uses_autograd := autograd base
uses_vq := vq autograd base
uses_nn := nn autograd base
uses_data := data base
uses_train := train nn vq data autograd base
uses_infer := infer nn vq data autograd base
uses_serve := serve infer nn vq data autograd base
uses_cli := serve infer train nn vq data autograd base

objects = $(patsubst src/%.c,$(BUILD)/$(2)/%.o,$(filter src/$(1)/%,$(SOURCES)))
libraries = $(foreach folder,$(1),$(BUILD)/$(2)/lib$(folder).a)

define folder_library
$(BUILD)/$(2)/lib$(1).a: $$(call objects,$(1),$(2)) $(BUILD)/sources-$(1)
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$(filter %.o,$$^)
endef
$(foreach real,float double,$(foreach folder,$(FOLDERS),$(eval $(call folder_library,$(folder),$(real)))))

# The files of the service's page become arrays in its library.
$(BUILD)/page_data.c: tools/embed-page.sh $(PAGE_FILES) $(BUILD)/page
	@mkdir -p $(@D)
	$(call say,EMBED src/serve/page)
	$(Q)tools/embed-page.sh $(PAGE_FILES) >$@
$(BUILD)/float/page_data.o $(BUILD)/double/page_data.o: $(BUILD)/page_data.c $(BUILD)/flags | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/float/libserve.a: $(BUILD)/float/page_data.o
$(BUILD)/double/libserve.a: $(BUILD)/double/page_data.o

link_inputs = $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ALL_LDFLAGS) $(LIBS)

$(BUILD)/bin/%: $(BUILD)/float/cli/%.o $(CLI_SHARED) $(call libraries,$(uses_cli),float)
	@mkdir -p $(@D)
	$(call say,LINK $@)
	$(Q)$(CC) $(link_inputs) -o $@

# ---- Tests -----------------------------------------------------------------------------------------------------------------------
# tests/unit/FOLDER/test_NAME.c -> build/tests/FOLDER/test_NAME, and test_NAME_double where the folder computes with `real`.
# tests/golden/golden.c         -> build/tests/golden and build/tests/golden_double
# tests/fuzz/fuzz_NAME.c        -> build/tests/fuzz/replay_NAME: the seeds and mutations of them, without a fuzzing engine
# tests/{cli,network,golden}/*.sh and tools/check-includes.sh are run as they are
# tests/bench/bench_NAME.c      -> build/tests/bench/bench_NAME, run by `make bench`
# Objects are compiled apart, so that a change in src links tests again but compiles none.

# cmocka.h needs these headers before it, and the formatter sorts includes by name.
TEST_FLAGS := -Itests -include stdarg.h -include stddef.h -include setjmp.h -include stdint.h
compile_test = $(CC) $(ALL_CFLAGS) $(TEST_FLAGS) $(FILE_FLAGS) -MMD -MP -c $< -o $@
TEST_OBJECTS := $(BUILD)/test-objects

$(TEST_OBJECTS)/float/%.o: tests/%.c $(BUILD)/flags | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(compile_test)
$(TEST_OBJECTS)/double/%.o: tests/%.c $(BUILD)/flags | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC $< (double))
	$(Q)$(compile_test) -DASTRA_DOUBLE

# Hundreds of programs are linked, so the fastest linker that is there does it.
FAST_LINKER = $(eval FAST_LINKER := $$(firstword $$(foreach name,lld gold,$$(shell \
  $(CC) -fuse-ld=$$(name) -Wl,--version >/dev/null 2>&1 && echo -fuse-ld=$$(name)))))$(FAST_LINKER)
define link_test
	@mkdir -p $(@D)
	$(call say,LINK $@)
	$(Q)$(CC) $(FAST_LINKER) $(link_inputs) $(1) -o $@
endef

define folder_tests
$(BUILD)/tests/$(1)/%: $(TEST_OBJECTS)/float/unit/$(1)/%.o $(2) $$(call libraries,$$(uses_$(1)),float)
	$$(call link_test,-lcmocka)
$(BUILD)/tests/$(1)/%_double: $(TEST_OBJECTS)/double/unit/$(1)/%.o $(2) $$(call libraries,$$(uses_$(1)),double)
	$$(call link_test,-lcmocka)
endef
$(foreach folder,$(FOLDERS),$(eval $(call folder_tests,$(folder),)))
$(eval $(call folder_tests,cli,$(CLI_SHARED)))

$(BUILD)/tests/golden: $(TEST_OBJECTS)/float/golden/golden.o $(call libraries,$(uses_cli),float)
	$(call link_test)
$(BUILD)/tests/golden_double: $(TEST_OBJECTS)/double/golden/golden.o $(call libraries,$(uses_cli),double)
	$(call link_test)
$(BUILD)/tests/fuzz/replay_%: $(TEST_OBJECTS)/float/fuzz/fuzz_%.o $(TEST_OBJECTS)/float/fuzz/replay_main.o $(CLI_SHARED) $(call libraries,$(uses_cli),float)
	$(call link_test)
$(BUILD)/tests/bench/%: $(TEST_OBJECTS)/float/bench/%.o $(call libraries,$(uses_cli),float)
	$(call link_test)

# Preloaded by tests/cli/no_memory.sh, which is skipped where there is none: sanitizers have an allocator of their own.
FAILING_ALLOCATOR := $(BUILD)/tests/cli/fail_allocations.so
$(FAILING_ALLOCATOR): tests/cli/fail_allocations.c $(BUILD)/flags | $(DEPS)
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-missing-prototypes -fPIC -shared $< -o $@

# Allocations are counted in float only: on some CPUs OpenBLAS's small dgemm takes its scratch from malloc.
DOUBLE_FOLDERS := autograd vq nn train
UNIT_TESTS := $(foreach folder,$(FOLDERS) cli,$(patsubst tests/unit/%.c,%,$(wildcard tests/unit/$(folder)/test_*.c)) \
  $(if $(filter $(folder),$(DOUBLE_FOLDERS)),$(patsubst tests/unit/%.c,%_double,$(filter-out %_allocation.c,$(wildcard tests/unit/$(folder)/test_*.c)))))
GOLDEN := $(if $(wildcard tests/golden/golden.c),golden golden_double)
REPLAYS := $(patsubst tests/fuzz/fuzz_%.c,fuzz/replay_%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES := $(patsubst tests/bench/%.c,$(BUILD)/tests/bench/%,$(wildcard tests/bench/bench_*.c))
# helpers.sh holds shared functions alone.
SCRIPTS := tools/check-includes.sh $(filter-out %/helpers.sh,$(wildcard tests/golden/*.sh tests/cli/*.sh tests/network/*.sh))

# `make test T=name`: the tests whose name contains it; several words mean any of them.
chosen = $(strip $(if $(T),$(foreach test,$(1),$(if $(strip $(foreach word,$(T),$(findstring $(word),$(test)))),$(test))),$(1)))
CHOSEN_PROGRAMS = $(addprefix $(BUILD)/tests/,$(call chosen,$(UNIT_TESTS) $(REPLAYS)))
CHOSEN_SCRIPTS = $(call chosen,$(SCRIPTS))
# Scripts run the programs, the golden check and what makes checkpoints; infer's tests start processes of the real program.
CHOSEN_NEEDS = $(if $(filter tests/%,$(CHOSEN_SCRIPTS))$(filter $(BUILD)/tests/infer/% $(BUILD)/tests/cli/%,$(CHOSEN_PROGRAMS)),$(PROGRAMS)) \
  $(if $(filter tests/cli/% tests/network/%,$(CHOSEN_SCRIPTS)),$(addprefix $(BUILD)/tests/infer/make_,sample traffic intruder callers delay requests gguf) $(addprefix $(BUILD)/tests/serve/make_,clients crowd) $(BUILD)/tests/bench/plot_losses) \
  $(if $(SANITIZE),,$(if $(filter tests/cli/no_memory.sh,$(CHOSEN_SCRIPTS)),$(FAILING_ALLOCATOR))) \
  $(if $(filter tests/golden/%,$(CHOSEN_SCRIPTS))$(call chosen,$(GOLDEN)),$(addprefix $(BUILD)/tests/,$(GOLDEN)))

## check: the quick tests, in about a minute: units, replayed fuzz seeds, includes; T=name as with test
QUICK_SCRIPTS := tools/check-includes.sh tests/cli/manual.sh tests/cli/documents.sh
.PHONY: check
check:
	+@$(PARALLEL_MAKE) check-programs
	@BUILD=$(BUILD) JOBS=$(JOBS) tests/run.sh $(CHOSEN_PROGRAMS) $(call chosen,$(QUICK_SCRIPTS))

.PHONY: check-programs
check-programs: $(CHOSEN_PROGRAMS) $(if $(filter $(BUILD)/tests/infer/% $(BUILD)/tests/cli/%,$(CHOSEN_PROGRAMS))$(call chosen,$(QUICK_SCRIPTS)),$(PROGRAMS))

## test: install what is missing, build, run every test; T=name runs those whose name contains it
.PHONY: test
test:
	+@$(PARALLEL_MAKE) test-programs
	@BUILD=$(BUILD) JOBS=$(JOBS) tests/run.sh $(CHOSEN_PROGRAMS) $(CHOSEN_SCRIPTS)

# What computes: for these the kernels make a difference. Those of autograd, vq, nn and train that only read, write and check are left out.
NUMERIC_UNITS := $(filter-out $(addsuffix %,$(addprefix nn/test_,config checkpoint json_build layout safetensors) \
    $(addprefix train/test_,metrics plot step_allocation) vq/test_vq_allocation),$(filter autograd/% vq/% nn/% train/%,$(UNIT_TESTS))) \
  $(addprefix infer/test_,classify_texts cluster cluster_entropy cluster_tables code_exchange code_exchange_rows collective device_session drafter \
    evaluate_text leader_sequences node node_sequences node_text selftest planner_split strategies text_cluster measure)
NUMERIC_PROGRAMS = $(addprefix $(BUILD)/tests/,$(call chosen,$(NUMERIC_UNITS)))
NUMERIC_SCRIPTS = $(call chosen,tests/golden/golden.sh)

## test-kernels: the numeric tests with each of OpenBLAS's kernels and of ours that this processor can run; T=name as with test
.PHONY: test-kernels
test-kernels:
	+@$(PARALLEL_MAKE) test-kernels-programs
	@BUILD=$(BUILD) tests/kernels.sh $(NUMERIC_PROGRAMS) $(NUMERIC_SCRIPTS)

.PHONY: test-kernels-programs
test-kernels-programs: $(NUMERIC_PROGRAMS) $(BUILD)/tests/autograd/say_kernels $(PROGRAMS) \
  $(if $(NUMERIC_SCRIPTS),$(addprefix $(BUILD)/tests/,$(GOLDEN)))

# Without linking: for compilers that only look at the code.
.PHONY: test-objects
test-objects: $(patsubst tests/%.c,$(TEST_OBJECTS)/float/%.o,$(wildcard tests/unit/*/*.c tests/golden/*.c tests/fuzz/*.c tests/bench/*.c))

.PHONY: test-programs
test-programs: $(CHOSEN_PROGRAMS) $(CHOSEN_NEEDS)

# What these sanitizers stop exits with 1 by default, which is also how the programs fail: a test that expects 1 would see no difference.
# (The thread sanitizer's is 66.) What the environment sets comes last and wins.
## asan, check-asan: `make test` or `make check` under the address and undefined-behaviour sanitizers, in build-asan
.PHONY: asan check-asan
asan check-asan:
	@TIME_SCALE=6 ASAN_OPTIONS="exitcode=99:$$ASAN_OPTIONS" UBSAN_OPTIONS="exitcode=99:$$UBSAN_OPTIONS" \
	  $(MAKE) --no-print-directory $(if $(filter check-%,$@),check,test) BUILD=build-asan \
	  CFLAGS="-O1 -g -fno-omit-frame-pointer" SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined"

## tsan: the tests of threads, loader, infer, serve and training under the thread sanitizer, in build-tsan
.PHONY: tsan
tsan:
	@TIME_SCALE=10 TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.suppressions $$TSAN_OPTIONS" \
	  $(MAKE) --no-print-directory test BUILD=build-tsan CFLAGS="-O1 -g" SANITIZE=-fsanitize=thread \
	  T="$(or $(T),threads loader infer/ serve/ train/)"

## arm64-test: unit tests of 8- and 4-bit weights built for arm64 and run under qemu (Debian), in build-arm64; T=name runs others
.PHONY: arm64-test
arm64-test:
	@tools/arm64-test.sh $(or $(T),lowbit test_gguf)

## fuzz: every parser for FUZZ_SECONDS (20) each; with clang's engine, or else by mutating the seeds
FUZZ_SECONDS ?= 20
.PHONY: fuzz
fuzz:
	@tools/fuzz.sh $(FUZZ_SECONDS)

# Called by tools/fuzz.sh with CC=clang and BUILD=build-fuzz.
.PHONY: fuzz-programs
fuzz-programs: $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/fuzz/%: $(TEST_OBJECTS)/float/fuzz/%.o $(CLI_SHARED) $(call libraries,$(uses_cli),float)
	$(call link_test,-fsanitize=fuzzer)

.PHONY: replays
replays: $(addprefix $(BUILD)/tests/,$(REPLAYS))

## bench: build and run the benchmarks of tests/bench
.PHONY: bench
bench:
	+@$(PARALLEL_MAKE) programs bench-programs
	@for program in $(BENCHES); do echo "== $$program"; BUILD=$(BUILD) $$program || exit 1; done

.PHONY: bench-programs
bench-programs: $(BENCHES)

# ---- Looking after the source ----------------------------------------------------------------------------------------------------

C_FILES = $(shell find src tests -name '*.[ch]')

## format: clang-format over all C files
.PHONY: format
format:
	clang-format -i $(C_FILES)

## check-format: what clang-format would change
.PHONY: check-format
check-format:
	@clang-format --dry-run -Werror $(C_FILES)

## tidy: clang-tidy over src
.PHONY: tidy
tidy: | $(DEPS)
	clang-tidy --quiet $(filter src/%.c,$(filter-out %_avx2.c %_avx512.c,$(C_FILES))) -- -std=c11 -D_GNU_SOURCE -Isrc

## check-includes: the rules of who may include whom, and unique file names
.PHONY: check-includes
check-includes:
	@tools/check-includes.sh

# ---- Use -------------------------------------------------------------------------------------------------------------------------

## demo: build, fine-tune small models on bundled images and texts, run them on four processes
.PHONY: demo
demo: all
	@BUILD=$(BUILD) tools/demo.sh

TO = $(DESTDIR)$(PREFIX)
SYSTEMD_UNITS := $(wildcard dist/*.service)
# Each ends with a NUL. Without git, or where it cannot tell (a copied worktree), all files that lie there, as in an archive.
DATA_FILES = { { [ -e .git ] && git -c safe.directory="$(CURDIR)" ls-files -z datasets checkpoints experiments 2>/dev/null; } \
  || find datasets checkpoints experiments -type f -print0; }
# What programs and manual pages name, and the licence: beside each other as here.
DOCUMENTS := LICENSE README.md CHANGELOG.md $(wildcard docs/*.md docs/results/*.md)

## install: programs, manual pages, documents, systemd units, bundled data, checkpoints and experiments, under PREFIX (/usr/local); DESTDIR is put in front
.PHONY: install
install: all
	install -d "$(TO)/bin" "$(TO)/share/man/man1" "$(TO)/share/astra" "$(TO)/lib/systemd/system"
	install $(PROGRAMS) "$(TO)/bin"
	install -m 644 docs/man/*.1 "$(TO)/share/man/man1"
	for document in $(DOCUMENTS); do install -D -m 644 $$document "$(TO)/share/doc/astra/$$document" || exit 1; done
	for unit in $(notdir $(SYSTEMD_UNITS)); do sed -E 's|/usr/local/bin/([a-z-]+)|"$(PREFIX)/bin/\1"|' dist/$$unit >"$(TO)/lib/systemd/system/$$unit" \
	  && chmod 644 "$(TO)/lib/systemd/system/$$unit" || exit 1; done
	set -o pipefail; $(DATA_FILES) | xargs -0 -I{} install -D -m 644 {} "$(TO)/share/astra/{}"

## uninstall: remove what install put there
.PHONY: uninstall
uninstall:
	for program in $(notdir $(PROGRAMS)); do rm -f "$(TO)/bin/$$program"; done
	for page in $(notdir $(wildcard docs/man/*.1)); do rm -f "$(TO)/share/man/man1/$$page"; done
	for document in $(DOCUMENTS); do rm -f "$(TO)/share/doc/astra/$$document"; done
	if [ -d "$(TO)/share/doc/astra" ]; then find "$(TO)/share/doc/astra" -depth -type d -empty -delete; fi
	for unit in $(notdir $(SYSTEMD_UNITS)); do rm -f "$(TO)/lib/systemd/system/$$unit"; done
	set -o pipefail; if [ -d "$(TO)/share/astra" ]; then $(DATA_FILES) | (cd "$(TO)/share/astra" && xargs -0 rm -f) \
	  && find "$(TO)/share/astra" -depth -type d -empty -delete; fi

## clean: remove everything that was built
.PHONY: clean
clean:
	rm -rf $(BUILD) build-asan build-clang build-tsan build-arm64 build-arm64-root build-fuzz build-fuzz-replay

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
