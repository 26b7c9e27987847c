# Everyday commands. Each one installs what is missing, configures and builds what it needs.
JOBS ?= $(shell nproc)
BIN := build/bin/deepinfer
CTEST := ctest --output-on-failure --no-tests=error -j $(JOBS)

.PHONY: all setup build run test test-all bench format lint asan tsan fuzz install clean

all: build

setup:
	@tools/setup

build: setup
	@cmake --preset release > build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }
	@rm -f build-configure.log
	@cmake --build build -j $(JOBS)

run: build
	$(BIN) generate --model models/tiny-v41 --prompt "The history of the city" --max-tokens 120 --temperature 0

test: build
	cd build && $(CTEST) -LE slow

test-all: build
	cd build && $(CTEST)

bench: build
	@tools/bench

format: setup
	@git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs -r clang-format-19 -i

lint: build
	@tools/lint

asan: setup
	cmake --preset asan && cmake --build build-asan -j $(JOBS)
	cd build-asan && $(CTEST) -LE slow

tsan: setup
	cmake --preset tsan && cmake --build build-tsan -j $(JOBS)
	cd build-tsan && $(CTEST) -LE slow -L tsan

fuzz: setup
	cmake --preset fuzz && cmake --build build-fuzz -j $(JOBS)
	@tools/fuzz

install: build
	cmake --install build --prefix $(or $(PREFIX),/usr/local)

clean:
	rm -rf build build-asan build-tsan build-fuzz
