# How a folder declares what it builds. Include paths start at the top folder: #include "topology/machine.h".

add_library(islands_options INTERFACE)
target_include_directories(islands_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(islands_options INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers
  -fno-omit-frame-pointer)
# GCC 12 reports coroutine frames and inlined std::string code as maybe-uninitialized or overread; known false alarms.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(islands_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overread
    -Wno-array-bounds -Wno-stringop-overflow)
endif()
# Rows are copied all the time, and GCC would do it with `rep movsq`, which takes twice as long as the C library.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_compile_options(islands_options INTERFACE -mstringop-strategy=libcall)
endif()
target_link_libraries(islands_options INTERFACE Threads::Threads)

# Most of its garbage collections find nothing: a fifth of the time that tests take, for some 300 MB more of memory.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:--param ggc-min-heapsize=600000")
endif()
# Headers of others, read once instead of once a source. Ours are not among them, so that who edits one waits for what
# includes it only. What a source forgets to include shows with ISLANDS_TOGETHER=OFF.
set(ISLANDS_HEADERS <algorithm> <array> <atomic> <chrono> <filesystem> <fstream> <functional> <map> <memory> <mutex>
  <optional> <set> <span> <string> <string_view> <thread> <utility> <vector> <absl/container/flat_hash_map.h>
  <absl/container/flat_hash_set.h> <absl/functional/function_ref.h> <absl/status/statusor.h> <fmt/format.h>
  <fmt/ranges.h> <google/protobuf/message.h> <google/protobuf/map.h> <google/protobuf/map_entry.h>
  <google/protobuf/repeated_field.h> <nlohmann/json.hpp> <spdlog/spdlog.h>)
function(islands_precompile target from)
  if(ISLANDS_TOGETHER)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
# Precompiled ones are taken only by what has the same definitions.
target_compile_definitions(islands_options INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog,INTERFACE_COMPILE_DEFINITIONS>
  $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
add_library(islands_headers OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/headers.cc)
target_link_libraries(islands_headers PRIVATE islands_options protobuf::libprotobuf)
target_precompile_headers(islands_headers PRIVATE ${ISLANDS_HEADERS})

# islands_library(NAME SOURCES... [APART...] DEPENDS...): a folder's code as static library islands_NAME.
# Its sources are compiled eight at a time, which shortens a clean build; ISLANDS_TOGETHER=OFF compiles each alone, for who
# edits them. Those APART always are: names private to them are also names of another file, or
# every transaction runs through them, and what else a file has changes what GCC inlines (4 % of all instructions).
function(islands_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;APART;DEPENDS" ${ARGN})
  add_library(islands_${name} STATIC ${ARG_SOURCES} ${ARG_APART})
  target_link_libraries(islands_${name} PUBLIC islands_options ${ARG_DEPENDS})
  islands_compile_together(islands_${name} ${ARG_APART})
  set_target_properties(islands_${name} PROPERTIES ISLANDS_APART "${ARG_APART}")
  islands_precompile(islands_${name} islands_headers)
endfunction()
# Code that UBSan finds nothing in, and takes most of its time to compile: what protoc writes, and the commands, whose
# inputs are checked words. ASan still sees it.
function(islands_without_ubsan)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=.*undefined")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
    endforeach()
  endif()
endfunction()
function(islands_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ISLANDS_TOGETHER} UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# How tests are compiled. They hardly wait for their own code, and without UBSan, since what is tested has it; half the
# time was spent on headers, which is once enough.
function(islands_compile_test name)
  target_link_libraries(${name} PRIVATE islands_options GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE -O1)
  islands_without_ubsan(${name})
  if(NOT name STREQUAL "test_headers")
    target_precompile_headers(${name} REUSE_FROM test_headers)
  endif()
endfunction()
add_executable(test_headers EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/test_headers.cc)
islands_compile_test(test_headers)
target_link_libraries(test_headers PRIVATE protobuf::libprotobuf)
target_precompile_headers(test_headers PRIVATE ${ISLANDS_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)

# islands_test(NAME SOURCES... DEPENDS... [STRESS]): one GoogleTest binary, one ctest entry; its sources are compiled together.
# Labels: `unit`: all. `stress`: those with threads. `core`: those of the rooms that lay out memory and share it. `long`:
# minutes of more of the same. `make sanitize` runs `core` under ASan+UBSan, and its `stress` under TSan;
# `make sanitize-all` all but `long`.
function(islands_test name)
  cmake_parse_arguments(ARG "STRESS" "TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  islands_compile_test(${name})
  set(apart ${ARG_SOURCES})  # what replaces operator new must not be seen where that is called
  list(FILTER apart INCLUDE REGEX "count_allocations.cc$")
  islands_compile_together(${name} ${apart})
  add_test(NAME ${name} COMMAND ${name})
  set(labels unit)
  if(ARG_STRESS)
    list(APPEND labels stress)
  endif()
  file(RELATIVE_PATH room ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(room MATCHES "^(runtime|partitioner|instance/(storage|log|messaging|locks|execution))")
    list(APPEND labels core)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# islands_bench(NAME SOURCES... DEPENDS...): one Google Benchmark binary under build/PRESET/bench.
function(islands_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  target_link_libraries(${name} PRIVATE islands_options ${ARG_DEPENDS} benchmark::benchmark benchmark::benchmark_main)
endfunction()

# islands_fuzz(NAME SOURCES... DEPENDS... [ROUNDS n]): a libFuzzer binary in the `fuzz` preset. The same source is linked
# with a small main elsewhere so that inputs go through it as a unit test everywhere: those of its corpus, if there is
# one beside its source (NAME.corpus, see cmake/fuzz_corpus.py), and n pseudo-random ones.
function(islands_fuzz name)
  cmake_parse_arguments(ARG "" "ROUNDS" "SOURCES;DEPENDS" ${ARGN})
  if(ISLANDS_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE islands_options ${ARG_DEPENDS})
  else()
    islands_test(${name}_replay SOURCES ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/cmake/fuzz_replay.cc DEPENDS ${ARG_DEPENDS})
    if(NOT ARG_ROUNDS)
      set(ARG_ROUNDS 20000)
    endif()
    list(GET ARG_SOURCES 0 source)
    get_filename_component(folder ${source} DIRECTORY)
    target_compile_definitions(${name}_replay PRIVATE ISLANDS_FUZZ_ROUNDS=${ARG_ROUNDS})
    set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${name}.corpus)
    if(EXISTS ${corpus})
      target_compile_definitions(${name}_replay PRIVATE ISLANDS_FUZZ_CORPUS="${corpus}")
    endif()
  endif()
endfunction()
