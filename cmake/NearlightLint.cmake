# SPDX-License-Identifier: Apache-2.0
# The checks of the sources themselves, as ctest entries with the label lint.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  add_test(NAME lint.layers COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tools/check_layers.py")
  add_test(NAME lint.layers_self_test
    COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tools/check_layers.py" --self-test)
  set_tests_properties(lint.layers lint.layers_self_test PROPERTIES LABELS lint TIMEOUT 60)
else()
  message(WARNING "No Python 3: the tests labelled lint are left out")
endif()
