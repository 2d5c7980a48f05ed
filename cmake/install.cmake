# What `cmake --install` puts where, and the target `uninstall` that takes it away again. The
# drop-in libraries have their rules where they are made (src/verbs).

foreach(program rdmalab rdmalab-card rdma_perftest flow_steer pcc)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
# Scripts that were written for the reference programs find ours by their names.
foreach(program flow_steer pcc)
  if(TARGET ${program})
    install(FILES ${CMAKE_BINARY_DIR}/bin/doca_${program} DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

foreach(section 1 3 5 8)
  file(GLOB pages ${CMAKE_SOURCE_DIR}/man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()

file(GLOB topologies ${CMAKE_SOURCE_DIR}/topologies/*.toml)
if(topologies)
  install(FILES ${topologies} DESTINATION ${CMAKE_INSTALL_DATADIR}/rdmalab/topologies)
endif()

if(TARGET rdmalab)
  set(completions ${CMAKE_BINARY_DIR}/completions)
  file(MAKE_DIRECTORY ${completions})
  add_custom_command(
    OUTPUT ${completions}/rdmalab ${completions}/_rdmalab ${completions}/rdmalab.fish
    COMMAND rdmalab completion bash > ${completions}/rdmalab
    COMMAND rdmalab completion zsh > ${completions}/_rdmalab
    COMMAND rdmalab completion fish > ${completions}/rdmalab.fish
    DEPENDS rdmalab VERBATIM)
  add_custom_target(completions ALL DEPENDS ${completions}/rdmalab)
  install(FILES ${completions}/rdmalab DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${completions}/_rdmalab DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${completions}/rdmalab.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

foreach(program flow_steer pcc)
  if(TARGET ${program})
    set(folder ${CMAKE_BINARY_DIR}/completions)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(
      OUTPUT ${folder}/${program} ${folder}/_${program} ${folder}/${program}.fish
      COMMAND ${program} --completion bash > ${folder}/${program}
      COMMAND ${program} --completion zsh > ${folder}/_${program}
      COMMAND ${program} --completion fish > ${folder}/${program}.fish
      DEPENDS ${program} VERBATIM)
    add_custom_target(completions_${program} ALL DEPENDS ${folder}/${program})
    install(FILES ${folder}/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${folder}/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${folder}/${program}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endforeach()

if(TARGET rdma_perftest)
  # Scripts that were written for the other name find it.
  install(FILES ${CMAKE_BINARY_DIR}/bin/doca_perftest DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/src/perftest/report.schema.json
    ${CMAKE_SOURCE_DIR}/src/perftest/scenario.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/rdmalab)
  install(FILES ${CMAKE_SOURCE_DIR}/docs/perftest.md ${CMAKE_SOURCE_DIR}/docs/perftest-scenarios.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/scenarios DESTINATION ${CMAKE_INSTALL_DOCDIR})
  set(completions ${CMAKE_BINARY_DIR}/completions)
  add_custom_command(
    OUTPUT ${completions}/rdma_perftest ${completions}/_rdma_perftest ${completions}/rdma_perftest.fish
    COMMAND rdma_perftest --completion bash > ${completions}/rdma_perftest
    COMMAND rdma_perftest --completion zsh > ${completions}/_rdma_perftest
    COMMAND rdma_perftest --completion fish > ${completions}/rdma_perftest.fish
    DEPENDS rdma_perftest VERBATIM)
  add_custom_target(perftest_completions ALL DEPENDS ${completions}/rdma_perftest)
  install(FILES ${completions}/rdma_perftest DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${completions}/_rdma_perftest DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${completions}/rdma_perftest.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

configure_file(${CMAKE_SOURCE_DIR}/cmake/uninstall.cmake.in ${CMAKE_BINARY_DIR}/uninstall.cmake @ONLY)
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${CMAKE_BINARY_DIR}/uninstall.cmake)
