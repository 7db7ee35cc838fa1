// The algorithms and protocols there are, by name.
#pragma once

namespace nearlight::algorithm {

enum class Algorithm { copy, one_shot };
enum class Protocol { ll, simple };

const char* name_of(Algorithm algorithm);
const char* name_of(Protocol protocol);

}  // namespace nearlight::algorithm
