// The version of the wire: what ps.proto, chief.proto and shm_message.h mean.
//
// Place: Hello and Register carry it both ways. Whoever hears another version
// refuses it, so that two releases never misread each other.
//
// It goes up by one with every change that an older release would misread. A
// new field that the other side may ignore is no such change.
#ifndef PROTO_WIRE_WIRE_VERSION_H_
#define PROTO_WIRE_WIRE_VERSION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace weir {

inline constexpr uint32_t kWireVersion = 3;

// OK if `theirs`, the version that `peer` ("the chief") speaks, is
// kWireVersion. Otherwise INVALID_ARGUMENT with both numbers; 0 is a release
// that did not tell its version.
absl::Status CheckWireVersion(const std::string& peer, uint32_t theirs);

}  // namespace weir

#endif  // PROTO_WIRE_WIRE_VERSION_H_
