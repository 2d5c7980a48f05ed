# How a room is built: one static library, its unit tests beside the code, optionally benchmarks and fuzzers.
#
#   rdmalab_room(wire SOURCES ... LINKS rdmalab_base ...)   -> library rdmalab_wire
#   rdmalab_tests(wire icrc_test.cc ... LINKS ...)          -> one GoogleTest program, one ctest per TEST
#   rdmalab_bench(wire icrc_bench.cc ... LINKS ...)         -> Google Benchmark program bin/bench/wire
#   rdmalab_fuzzer(bth_fuzz.cc LINKS ...)                   -> smoke run in ctest; libFuzzer with -DRDMALAB_FUZZ=ON

option(RDMALAB_FUZZ "Build the fuzzers with libFuzzer (clang)" OFF)
set(RDMALAB_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

set(RDMALAB_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND RDMALAB_WARNINGS -Wno-interference-size)
endif()

add_library(rdmalab_flags INTERFACE)
target_compile_options(rdmalab_flags INTERFACE ${RDMALAB_WARNINGS})
target_include_directories(rdmalab_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(RDMALAB_SANITIZE)
  target_compile_options(rdmalab_flags INTERFACE -fsanitize=${RDMALAB_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(rdmalab_flags INTERFACE -fsanitize=${RDMALAB_SANITIZE})
endif()
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
include(GoogleTest)

function(rdmalab_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(rdmalab_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(rdmalab_${name} PUBLIC rdmalab_flags ${ARG_LINKS})
endfunction()

function(rdmalab_tests name)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  add_executable(${name}_test ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name}_test PRIVATE rdmalab_flags ${ARG_LINKS} GTest::gtest_main GTest::gmock)
  # What is tested is optimised as it is for users; the tests themselves need not be, and compile in half the time.
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120 LABELS unit)
endfunction()

function(rdmalab_bench name)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  add_executable(${name}_bench ${ARG_UNPARSED_ARGUMENTS})
  set_target_properties(${name}_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/bench)
  target_link_libraries(${name}_bench PRIVATE rdmalab_flags ${ARG_LINKS} benchmark::benchmark benchmark::benchmark_main)
endfunction()

# A fuzzer defines LLVMFuzzerTestOneInput. Without clang it is linked with a driver that feeds seeded random inputs.
function(rdmalab_fuzzer source)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  get_filename_component(name ${source} NAME_WE)
  if(RDMALAB_FUZZ)
    add_executable(${name} ${source})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_test(NAME fuzz.${name} COMMAND ${name} -runs=20000 -seed=1)
  else()
    add_executable(${name} ${source} ${CMAKE_SOURCE_DIR}/src/base/fuzz_driver.cc)
    add_test(NAME fuzz.${name} COMMAND ${name} --runs 20000 --seed 1)
  endif()
  target_link_libraries(${name} PRIVATE rdmalab_flags ${ARG_LINKS})
  set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 120 LABELS fuzz)
endfunction()
