# How every target of ours is compiled.
add_library(reprise_options INTERFACE)
target_compile_features(reprise_options INTERFACE cxx_std_20)
set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow $<$<BOOL:${REPRISE_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlapping copies inside std::string's operator+ (GCC bug 105651).
  list(APPEND warnings -Wno-restrict)
endif()
target_compile_options(reprise_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
set(CMAKE_CXX_EXTENSIONS OFF)

if(REPRISE_SANITIZE)
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(reprise_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  # The sanitizers add a million relocations: the linker makes them once, in place of every run, which take half as long.
  target_link_options(reprise_options INTERFACE ${sanitize} $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()
if(REPRISE_COVERAGE)
  target_compile_options(reprise_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--coverage>)
  target_link_options(reprise_options INTERFACE --coverage)
endif()
if(REPRISE_FUZZ)
  target_compile_options(reprise_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()
