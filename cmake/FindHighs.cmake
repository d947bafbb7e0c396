# Finds HiGHS: a system one, the one at HIGHS_ROOT, or PyPI's highsbox in .venv. Sets Highs_LIBRARY
# and Highs_INCLUDE_DIR. By path, since highsbox's own CMake package points at a folder that is not
# there. Only the C interface may be used: highsbox is built with the old C++ strings.
file(GLOB highsbox LIST_DIRECTORIES true
  ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/highsbox/highs_dist)
find_path(Highs_INCLUDE_DIR interfaces/highs_c_api.h
  HINTS ${HIGHS_ROOT} $ENV{HIGHS_ROOT} PATHS ${highsbox} PATH_SUFFIXES highs include/highs include)
find_library(Highs_LIBRARY highs
  HINTS ${HIGHS_ROOT} $ENV{HIGHS_ROOT} PATHS ${highsbox} PATH_SUFFIXES lib lib64)
mark_as_advanced(Highs_INCLUDE_DIR Highs_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Highs REQUIRED_VARS Highs_LIBRARY Highs_INCLUDE_DIR)
