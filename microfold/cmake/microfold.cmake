# microfold_add_model: adds models as libraries of a CMake project. The checkout's CMakeLists.txt includes this file,
# and so does microfold-config.cmake, for find_package(microfold). docs/cmake.md describes it with examples.
#
#   microfold_add_model(<name> MODEL <file.tflite>... [TARGET <target or .toml>] [<option> <value>]...
#                       [LIBRARIES <target or library>...])
#
# <name> is the library target, the name of the header and the prefix of all C names; it must be a lower-case C
# identifier. Several models share kernels and one arena: <name> is then the name of the shared files, and each model
# has the name of its file. The default of TARGET is the target of the project, if known, else host. The options of
# `microfold build` are listed below. LIBRARIES are linked to the model: libraries for external code generators.
#
# Cache variables: MICROFOLD_COMMAND, a command that runs another microfold than the one next to this file;
# Python3_EXECUTABLE, the Python that runs this one.
cmake_minimum_required(VERSION 3.21)
include_guard(GLOBAL)

# Options of `microfold build`, in capitals and with underscores: without value, with one value, with several values.
set(MICROFOLD_SWITCHES
    HTML
    SINGLE_FILE
    STEP
    TAPS
    CACHE INTERNAL "")
set(MICROFOLD_VALUES
    ALIGN
    BOARD
    DATABASE
    EXTERNAL_FLAGS
    FLASH
    IO
    IO_LAYOUT
    LABELS
    LICENSE
    MAX_ITERATIONS
    MEMORY
    NUMERICS
    OBJECTIVE
    OPTIMIZE
    OPT_LEVEL
    RAM
    ROWS
    SIGNATURE
    SLIDING
    SLIDING_STEP
    WEIGHTS
    WEIGHTS_SECTION
    CACHE INTERNAL "")
set(MICROFOLD_LISTS
    CUSTOM
    DISABLE_PASS
    EXTERNAL
    INPUT_SHAPE
    INPUT_TYPE
    KERNEL
    OUTPUT_TYPE
    PASS_AFTER
    PASS_BEFORE
    PLACE
    PLACE_CODE
    REQUIRE_PASS
    CACHE INTERNAL "")
# Options whose values are files, relative to the folder of the caller. A change of a file triggers a new build.
set(MICROFOLD_FILES CUSTOM DATABASE LABELS CACHE INTERNAL "")

set(MICROFOLD_COMMAND "" CACHE STRING "command that runs microfold; default: the one next to microfold.cmake")

# Sets `result` to a command that runs microfold. It uses the first of these Pythons that has all packages: the one
# that the project names, the active environment's, the one in which microfold is installed, the system's.
function(_microfold_find_command result)
  if(MICROFOLD_COMMAND)
    set(${result} ${MICROFOLD_COMMAND} PARENT_SCOPE)
    return()
  endif()
  set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run.py")
  set(named "${Python3_EXECUTABLE}")
  if(NOT EXISTS "${MICROFOLD_PYTHON}" OR NOT named STREQUAL MICROFOLD_PYTHON_NAMED)
    unset(MICROFOLD_PYTHON CACHE)
    # In a checkout; in an environment with this file in lib/python3.x/site-packages (on Windows: Lib/site-packages).
    get_filename_component(parent "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.." ABSOLUTE)
    set(candidates "${named}")
    foreach(folder $ENV{VIRTUAL_ENV} "${parent}/.venv" "${parent}/../../.." "${parent}/../..")
      list(APPEND candidates "${folder}/bin/python3" "${folder}/Scripts/python.exe")
    endforeach()
    set(tried)
    foreach(python IN LISTS candidates ITEMS system)
      if(python STREQUAL "system")
        find_package(Python3 3.10 QUIET COMPONENTS Interpreter)
        set(python "${Python3_EXECUTABLE}")
      endif()
      if(NOT python OR NOT EXISTS "${python}" OR "${python}" IN_LIST tried)
        continue()
      endif()
      execute_process(COMMAND "${python}" "${script}" --check RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE error)
      if(status EQUAL 0)
        set(MICROFOLD_PYTHON "${python}" CACHE INTERNAL "the Python that runs microfold")
        set(MICROFOLD_PYTHON_NAMED "${named}" CACHE INTERNAL "the Python that the project named then")
        break()
      endif()
      string(REGEX REPLACE "^.*\n(.)" "\\1" reason "\n${error}")
      string(STRIP "${reason}" reason)
      list(APPEND tried "${python}")
      string(APPEND reasons "\n  ${python}: ${reason}")
    endforeach()
  endif()
  if(NOT MICROFOLD_PYTHON)
    if(NOT reasons)
      set(reasons " none was found")
    endif()
    set(source microfold)
    if(EXISTS "${parent}/pyproject.toml")
      set(source "${parent}")
    endif()
    message(FATAL_ERROR
      "microfold requires Python 3.10 or later with its packages. Tried:${reasons}\n"
      "Run .ci/setup in the checkout of microfold, or install it, e.g. python3 -m venv .venv && .venv/bin/pip "
      "install ${source}, and pass that Python with -DPython3_EXECUTABLE=.venv/bin/python.")
  endif()
  set(${result} "${MICROFOLD_PYTHON}" "${script}" PARENT_SCOPE)
endfunction()

# Sets `result` to the source files of microfold.
function(_microfold_find_sources result)
  get_filename_component(package "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." ABSOLUTE)
  set(data "${package}/_data") # of a wheel
  if(NOT EXISTS "${data}")
    get_filename_component(data "${package}/.." ABSOLUTE)
  endif()
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${package}/*.py" "${data}/templates/*" "${data}/targets/*.toml")
  list(FILTER files EXCLUDE REGEX "/__pycache__/") # a build writes there; that must not trigger another build
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# Stops unless `name` is valid as a header, a prefix of C names and a library.
function(_microfold_check_name what name)
  if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
    message(FATAL_ERROR "microfold_add_model: ${what} must be a lower-case C identifier; got '${name}'")
  endif()
  if(name MATCHES "__|_$|^mf|^simulate|^main$|_weights$|_helpers$")
    message(FATAL_ERROR "microfold_add_model: '${name}' would hide names of C or of the generated code; choose another")
  endif()
endfunction()

function(microfold_add_model name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "${MICROFOLD_SWITCHES}" "TARGET;${MICROFOLD_VALUES}"
                        "MODEL;LIBRARIES;${MICROFOLD_LISTS}")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "microfold_add_model(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  _microfold_check_name("the name" "${name}")
  if(NOT arg_MODEL)
    message(FATAL_ERROR "microfold_add_model(${name}): MODEL <file.tflite> is missing")
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "C" IN_LIST languages)
    message(FATAL_ERROR "microfold_add_model(${name}): the project must enable the language C: project(... LANGUAGES C)")
  endif()
  if(NOT arg_TARGET)
    if(CMAKE_CROSSCOMPILING AND MICROFOLD_CPU)
      set(arg_TARGET "${MICROFOLD_CPU}")
    else()
      set(arg_TARGET host)
    endif()
  endif()
  _microfold_find_command(command)
  _microfold_find_sources(depends)

  set(models "")
  set(stems "")
  foreach(file IN LISTS arg_MODEL)
    get_filename_component(model "${file}" ABSOLUTE)
    get_filename_component(stem "${file}" NAME_WLE)
    list(APPEND models "${model}")
    list(APPEND stems "${stem}")
  endforeach()
  list(APPEND depends ${models})
  list(LENGTH models count)
  if(arg_TARGET MATCHES "\\.toml$")
    get_filename_component(arg_TARGET "${arg_TARGET}" ABSOLUTE)
    list(APPEND depends "${arg_TARGET}")
  endif()
  foreach(option IN LISTS MICROFOLD_FILES)
    set(files "")
    foreach(file IN LISTS arg_${option})
      get_filename_component(file "${file}" ABSOLUTE)
      list(APPEND files "${file}")
    endforeach()
    set(arg_${option} "${files}")
    list(APPEND depends ${files})
  endforeach()

  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  set(options --target "${arg_TARGET}" --name "${name}" -o "${folder}")
  foreach(option IN LISTS MICROFOLD_SWITCHES MICROFOLD_VALUES MICROFOLD_LISTS)
    string(TOLOWER "--${option}" flag)
    string(REPLACE "_" "-" flag "${flag}")
    if(NOT option IN_LIST MICROFOLD_SWITCHES)
      foreach(value IN LISTS arg_${option})
        list(APPEND options "${flag}=${value}")
      endforeach()
    elseif(arg_${option})
      list(APPEND options "${flag}")
    endif()
  endforeach()

  set(sources "")
  set(others "")
  if(count EQUAL 1)
    set(stems "${name}")
  else()
    set(sources "${folder}/${name}_kernels.c")
    set(others "${folder}/${name}_kernels.h" "${folder}/${name}.h" "${folder}/${name}_report.json")
    if(arg_HTML)
      list(APPEND others "${folder}/${name}_report.html")
    endif()
  endif()
  foreach(stem IN LISTS stems)
    _microfold_check_name("the name of a model's file" "${stem}")
    list(APPEND sources "${folder}/${stem}.c")
    list(APPEND others "${folder}/${stem}.h" "${folder}/${stem}_helpers.h" "${folder}/${stem}_report.json")
    if(arg_WEIGHTS STREQUAL "blob")
      list(APPEND others "${folder}/${stem}_weights.bin")
    elseif(NOT arg_SINGLE_FILE)
      list(APPEND sources "${folder}/${stem}_weights.c")
      list(APPEND others "${folder}/${stem}_weights.h")
    endif()
    if(arg_HTML)
      list(APPEND others "${folder}/${stem}_report.html")
    endif()
  endforeach()
  add_custom_command(
    OUTPUT ${sources} ${others}
    COMMAND ${command} build ${models} ${options}
    DEPENDS ${depends}
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" # for relative paths in EXTERNAL_FLAGS
    COMMENT "Compiling ${arg_MODEL} for ${arg_TARGET}"
    VERBATIM)
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC "${folder}")
  set_target_properties(${name} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  if(arg_WEIGHTS STREQUAL "blob") # for rules of the firmware that use the file
    set_target_properties(${name} PROPERTIES MICROFOLD_WEIGHTS "${folder}/${name}_weights.bin")
  endif()
  set(level -O2)
  if(arg_OPTIMIZE STREQUAL "size")
    set(level -Os)
  endif()
  target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:${level}>)
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  if(NOT WIN32)
    target_link_libraries(${name} PUBLIC m)
  endif()
endfunction()
