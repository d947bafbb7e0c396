# How every target of ours is compiled.
add_library(reprise_options INTERFACE)
target_compile_features(reprise_options INTERFACE cxx_std_20)
target_compile_options(reprise_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow $<$<BOOL:${REPRISE_WERROR}>:-Werror>)
set(CMAKE_CXX_EXTENSIONS OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlapping copies inside std::string's operator+ (GCC bug 105651).
  target_compile_options(reprise_options INTERFACE -Wno-restrict)
endif()

if(REPRISE_SANITIZE)
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(reprise_options INTERFACE ${sanitize})
  target_link_options(reprise_options INTERFACE ${sanitize})
endif()
if(REPRISE_COVERAGE)
  target_compile_options(reprise_options INTERFACE --coverage)
  target_link_options(reprise_options INTERFACE --coverage)
endif()
if(REPRISE_FUZZ)
  target_compile_options(reprise_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
