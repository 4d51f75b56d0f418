# `make install` and `make deb`: the commands, the workloads, the experiments, headers and a CMake package for workloads and
# clients of one's own, man pages, completion of command lines, a systemd unit. Below PREFIX lies what build/release has below
# it, so programs find each other there as here.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # `all` is mostly tests; `make install` builds what is installed

# lib/islands is beside bin/, whatever a distribution calls its libraries' folder: the command looks for it there.
set(home lib/islands)
install(TARGETS islands islandd islands-logger islands-gateway RUNTIME DESTINATION bin)
install(TARGETS micro append insert payment smallbank tatp tpcc transfer voter ycsb LIBRARY DESTINATION ${home})
install(TARGETS counters ipc RUNTIME DESTINATION ${home})

set(python PATTERN __pycache__ EXCLUDE PATTERN .mypy_cache EXCLUDE)
install(FILES experiments/sweep.py experiments/report.py experiments/advise.py experiments/islands_command.py
  experiments/durability.py experiments/workload.py DESTINATION ${home}/experiments)
install(DIRECTORY experiments/sweeping experiments/reporting experiments/advising DESTINATION ${home}/experiments ${python})
install(DIRECTORY experiments/template DESTINATION ${home}/experiments)
file(GLOB sweeps CONFIGURE_DEPENDS experiments/*.yaml)
install(FILES ${sweeps} DESTINATION ${home}/experiments)
install(DIRECTORY deploy/doctor/ DESTINATION ${home}/doctor FILES_MATCHING PATTERN "*.py" ${python})
install(DIRECTORY instance/gateway/tools/ DESTINATION ${home}/gateway FILES_MATCHING PATTERN "*.py" ${python})
install(DIRECTORY instance/gateway/python/islands DESTINATION ${home}/python ${python})
install(DIRECTORY ${PROJECT_BINARY_DIR}/lib/islands/python/islands/_generated DESTINATION ${home}/python/islands ${python})
install(DIRECTORY dashboards/ DESTINATION ${home}/dashboards FILES_MATCHING PATTERN "*.json" PATTERN "*.yml"
  PATTERN "*.yaml" PATTERN "*.md" PATTERN rules_test.yml EXCLUDE PATTERN draw EXCLUDE)

# The whole interface of workloads - what transfer.cc includes, audit.h, for tests workload_trial.h -, with what these headers
# need themselves.
set(workload_headers coordinator/coordinator.h coordinator/transaction_id.h instance/simulation/workload_trial.h
  instance/storage/catalog.h instance/storage/pages/limits.h instance/storage/pages/page.h
  instance/storage/pages/page_latch.h instance/storage/pages/page_state.h instance/storage/pages/torn.h
  instance/workload/audit.h instance/workload/input_coder.h instance/workload/operation.h
  instance/workload/parameters.h instance/workload/transaction.h instance/workload/workload.h
  partitioner/key_codec.h partitioner/site_map.h runtime/check.h runtime/clock.h
  runtime/frame_pool.h runtime/latch_site.h runtime/random.h runtime/task.h)
foreach(header ${workload_headers})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION include/islands/workload/${folder})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/proto/control.pb.h DESTINATION include/islands/workload/proto)
install(DIRECTORY instance/gateway/cpp/include/ DESTINATION include FILES_MATCHING PATTERN "*.h")
install(TARGETS islands_client islands_client_proto ARCHIVE DESTINATION lib)
install(TARGETS islands_trial LIBRARY DESTINATION lib)
set(islands_workload_includes [["${islands_prefix}/include/islands/workload"]])
configure_package_config_file(deploy/package/islandsConfig.cmake.in ${PROJECT_BINARY_DIR}/package/islandsConfig.cmake
  INSTALL_DESTINATION lib/cmake/islands)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/islandsConfigVersion.cmake COMPATIBILITY ExactVersion)
# This build tree has the same package, for workloads.
set(islands_workload_includes "\"${PROJECT_SOURCE_DIR}\" \"${PROJECT_BINARY_DIR}\"")
configure_package_config_file(deploy/package/islandsConfig.cmake.in ${PROJECT_BINARY_DIR}/lib/cmake/islands/islandsConfig.cmake
  INSTALL_DESTINATION ${PROJECT_BINARY_DIR}/lib/cmake/islands INSTALL_PREFIX ${PROJECT_BINARY_DIR})
file(COPY ${PROJECT_BINARY_DIR}/package/islandsConfigVersion.cmake DESTINATION ${PROJECT_BINARY_DIR}/lib/cmake/islands)
install(FILES ${PROJECT_BINARY_DIR}/package/islandsConfig.cmake ${PROJECT_BINARY_DIR}/package/islandsConfigVersion.cmake
  DESTINATION lib/cmake/islands)

# Man pages and completion say what --help says, because they are made of it.
set(documents ${PROJECT_BINARY_DIR}/package/documents)
add_custom_target(documents
  COMMAND python3 ${PROJECT_SOURCE_DIR}/deploy/package/documents.py $<TARGET_FILE:islands> ${documents}
  DEPENDS islands islandd micro append insert payment smallbank tatp tpcc transfer voter ycsb python_stubs)
install(DIRECTORY ${documents}/man/ DESTINATION share/man/man1)
install(FILES ${documents}/islands DESTINATION share/bash-completion/completions)
install(FILES README.md CHANGELOG.md DESTINATION share/doc/islands)
install(FILES LICENSE DESTINATION share/doc/islands RENAME copyright)
install(FILES experiments/README.md DESTINATION share/doc/islands RENAME experiments.md)
install(FILES deploy/README.md DESTINATION share/doc/islands RENAME deploy.md)
install(FILES instance/workload/README.md DESTINATION share/doc/islands RENAME workload.md)
# The unit names the command by its path, which is known only when it is installed.
install(CODE "set(unit_source \"${PROJECT_SOURCE_DIR}/deploy/package/islands@.service.in\")
set(unit_name \"${PROJECT_BINARY_DIR}/package/islands@.service\")")
install(CODE [[
  set(bindir "${CMAKE_INSTALL_PREFIX}/bin")
  configure_file("${unit_source}" "${unit_name}" @ONLY)
]])
install(FILES ${PROJECT_BINARY_DIR}/package/islands@.service DESTINATION lib/systemd/system)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME islands)
set(CPACK_PACKAGE_CONTACT "the Islands developers <islands@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "OLTP on hardware islands: a shared-nothing storage manager, cut to the machine")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # what the programs link
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3, python3-yaml")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-matplotlib, python3-grpcio, python3-protobuf")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "prometheus, g++, cmake, libabsl-dev, libfmt-dev, libprotobuf-dev, libgrpc++-dev, libgtest-dev")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/package/postinst)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/package)
include(CPack)
