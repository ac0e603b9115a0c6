// The number of the admin port where nobody says another.
//
// Place: `weir task` opens it, and `weir render` lets the cluster reach it.
// Programs that OpenTelemetry watches show Prometheus their metrics there, and
// it has no other meaning.
#ifndef PROTO_ADMIN_ADMIN_PORT_H_
#define PROTO_ADMIN_ADMIN_PORT_H_

namespace weir {

inline constexpr int kAdminPort = 9464;

}  // namespace weir

#endif  // PROTO_ADMIN_ADMIN_PORT_H_
