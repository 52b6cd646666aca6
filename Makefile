# ASTRA: one Makefile for everything. `make help` lists the targets.
.DELETE_ON_ERROR:
SHELL := /bin/bash

CC ?= gcc
BUILD ?= build
CFLAGS ?= -O3 -g
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2
ifdef CI
WARNINGS += -Werror
endif
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARNINGS) -Isrc -fno-math-errno -fno-trapping-math -pthread $(CFLAGS) $(SANITIZE)
ALL_LDFLAGS = -pthread $(LDFLAGS) $(SANITIZE)
LIBS = -lopenblas -lpng -lcsv -ljansson -lcurl -larchive -lcrypto -lm

FOLDERS := base autograd vq nn data train infer
# Who may use whom, as link order: upper ones first.
PLAIN := base data
sources = $(shell find src/$(1) -name '*.c' 2>/dev/null)
objects = $(patsubst src/%.c,$(BUILD)/$(2)/%.o,$(call sources,$(1)))

PROGRAMS := $(patsubst src/cli/%.c,$(BUILD)/bin/%,$(wildcard src/cli/astra-*.c))
CLI_SHARED := $(filter-out $(wildcard src/cli/astra-*.c),$(wildcard src/cli/*.c))

.PHONY: all
all: $(PROGRAMS) ## all: the programs, into build/bin

# Two builds of the engine: real = float and real = double.
$(BUILD)/float/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(KERNEL_FLAGS) -MMD -MP -c $< -o $@
$(BUILD)/double/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(KERNEL_FLAGS) -DASTRA_DOUBLE -MMD -MP -c $< -o $@

# Architecture flags belong to these files only; the table in kernels.c picks at run time.
ifneq (,$(filter x86_64%,$(shell $(CC) -dumpmachine)))
%/kernels_avx2.o: KERNEL_FLAGS := -mavx2 -mfma
%/kernels_avx512.o: KERNEL_FLAGS := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512
endif

define folder_library
$(BUILD)/$(2)/lib$(1).a: $$(call objects,$(1),$(2))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar rcs $$@ $$^
endef
$(foreach folder,$(FOLDERS),$(eval $(call folder_library,$(folder),float)))
$(foreach folder,$(FOLDERS),$(eval $(call folder_library,$(folder),double)))

libraries = $(foreach folder,$(1),$(BUILD)/$(2)/lib$(folder).a)
uses_base := base
uses_autograd := autograd base
uses_vq := vq autograd base
uses_nn := nn autograd base
uses_data := data base
uses_train := train nn vq data autograd base
uses_infer := infer nn vq data autograd base
uses_cli := infer train nn vq data autograd base

$(BUILD)/bin/%: $(BUILD)/float/cli/%.o $(patsubst src/%.c,$(BUILD)/float/%.o,$(CLI_SHARED)) $(call libraries,$(uses_cli),float)
	@mkdir -p $(@D)
	$(CC) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ALL_LDFLAGS) $(LIBS) -o $@

# Tests: tests/unit/FOLDER/test_NAME.c -> build/tests/FOLDER/test_NAME, and test_NAME_double for folders that compute with `real`.
TEST_FLAGS := -Itests
define folder_tests
$(BUILD)/tests/$(1)/%: tests/unit/$(1)/%.c $$(call libraries,$$(uses_$(1)),float)
	@mkdir -p $$(@D)
	$$(CC) $$(ALL_CFLAGS) $$(TEST_FLAGS) -MMD -MP -MF $$@.d $$< -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group $$(ALL_LDFLAGS) $$(LIBS) -lcmocka -o $$@
$(BUILD)/tests/$(1)/%_double: tests/unit/$(1)/%.c $$(call libraries,$$(uses_$(1)),double)
	@mkdir -p $$(@D)
	$$(CC) $$(ALL_CFLAGS) -DASTRA_DOUBLE $$(TEST_FLAGS) -MMD -MP -MF $$@.d $$< -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group $$(ALL_LDFLAGS) $$(LIBS) -lcmocka -o $$@
endef
$(foreach folder,$(FOLDERS) cli,$(eval $(call folder_tests,$(folder))))

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
