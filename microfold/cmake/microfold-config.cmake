# For find_package(microfold): -Dmicrofold_DIR=$(microfold --cmake-dir)
include("${CMAKE_CURRENT_LIST_DIR}/microfold.cmake")
