# Installs the build into a scratch prefix, builds an example against that alone, and runs it.
#   cmake -DBUILD=… -DSOURCE=… -DSCRATCH=… -P install_test.cmake

file(REMOVE_RECURSE ${SCRATCH})
set(prefix ${SCRATCH}/prefix)
set(model ${SOURCE}/models/tiny-v41)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/install -B ${SCRATCH}/build -DCMAKE_PREFIX_PATH=${prefix}
    -DEXAMPLE=${SOURCE}/examples/offline_inference.cpp -DCMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/offline_inference ${model})
run(${prefix}/bin/deepinfer generate --model ${model} --prompt "The city" --max-tokens 2)
file(REMOVE_RECURSE ${SCRATCH})
