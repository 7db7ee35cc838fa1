# The map of reports to tests names tests that exist.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME docs.cases COMMAND "${Python3_EXECUTABLE}" -B "${CMAKE_CURRENT_SOURCE_DIR}/cases_check.py")
add_test(NAME docs.cases_self_test
  COMMAND "${Python3_EXECUTABLE}" -B "${CMAKE_CURRENT_SOURCE_DIR}/cases_check.py" --self-test)
set_tests_properties(docs.cases docs.cases_self_test PROPERTIES LABELS lint TIMEOUT 60)
