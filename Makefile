# The entry points. Each installs what is missing first (Debian 12; as root, otherwise it says what to install).
#
#   make demo     build, steer two RDMA flows over two paths by congestion control, judge the result
#   make test     build, run every test
#   make build    build only
#   make bench    print the performance table
#   make check    the quick part of the tests: format, layers, style, unit tests
#   make install  (PREFIX=/usr/local, DESTDIR)   make uninstall   make clean

PREFIX ?= /usr/local
BUILD := build
JOBS ?= $(shell nproc)
CTEST := ctest --test-dir $(BUILD) --output-on-failure -j2

.PHONY: demo test build bench check install uninstall clean packages configure
.NOTPARALLEL:

demo: build
	$(BUILD)/bin/rdmalab demo

test: build
	$(CTEST)

build: configure
	cmake --build $(BUILD) -j $(JOBS)

check: build
	$(CTEST) -L '^(unit|style)$$'

bench: build
	tests/bench/run

install: configure
	cmake -S . -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	cmake --build $(BUILD) -j $(JOBS)
	cmake --install $(BUILD)

uninstall:
	cmake --build $(BUILD) --target uninstall

clean:
	rm -rf $(BUILD)

packages:
	scripts/install-packages.sh

configure: packages
	cmake --preset release
