# Everyday commands. Each one installs what is missing, configures and builds what it needs.
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
BIN := build/bin/deepinfer
CTEST := ctest --output-on-failure --no-tests=error -j $(JOBS)

.PHONY: all setup build run test test-all bench cuda format lint asan tsan fuzz install clean

all: build

setup:
	@tools/setup

# $(call configure,PRESET): quiet unless it fails.
configure = log=$$(mktemp) && { cmake --preset $(1) > $$log 2>&1 || { cat $$log; rm -f $$log; exit 1; }; rm -f $$log; }

build: setup
	@$(call configure,release)
	@cmake --build build -j $(JOBS)

run: build
	$(BIN) generate --model models/tiny-v41 --prompt "Once upon a time" --max-tokens 120 --temperature 0

test: build
	cd build && $(CTEST) -LE slow

test-all: build
	cd build && $(CTEST)

bench: build
	@tools/bench

# Both kernel families; needs nvcc, no GPU.
cuda: setup
	@$(call configure,cuda)
	@cmake --build build-cuda -j $(JOBS)

format: setup
	@git -c safe.directory='*' ls-files '*.cc' '*.cpp' '*.h' '*.cu' '*.cuh' | xargs -r clang-format-19 -i

lint: build
	@tools/lint

asan: setup
	@$(call configure,asan)
	@cmake --build build-asan -j $(JOBS)
	cd build-asan && $(CTEST) -LE slow

tsan: setup
	@$(call configure,tsan)
	@cmake --build build-tsan -j $(JOBS) --target tsan_tests
	cd build-tsan && $(CTEST) -L tsan -LE slow

fuzz: setup
	@$(call configure,fuzz)
	@cmake --build build-fuzz -j $(JOBS) --target fuzz_targets
	@tools/fuzz $(FUZZ_SECONDS)

install: build
	cmake --install build --prefix $(or $(PREFIX),/usr/local)

clean:
	rm -rf build build-asan build-tsan build-fuzz build-cuda
