// The one place through which the library speaks without being asked: lines on stderr.
#pragma once

#include <string_view>

namespace nearlight::log {

// "nearlight: <text>" as one line, written at once. For what a user must know and no return value can say; an
// error is never logged, it is returned, and at a time-out only the state around it is told.
void warn(std::string_view text);
// The same line, for what a user has asked to be told (NEARLIGHT_DEBUG).
void note(std::string_view text);

}  // namespace nearlight::log
