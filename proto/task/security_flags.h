// The command-line flags of security, which every program that calls a server
// has.
#ifndef PROTO_TASK_SECURITY_FLAGS_H_
#define PROTO_TASK_SECURITY_FLAGS_H_

#include "proto/security/security.h"

namespace CLI {
class App;
}  // namespace CLI

namespace weir {

// Adds --insecure, --tls_dir and --identity, whose defaults `options` holds. A
// secret has no flag: the command lines of processes can be read by every user.
void AddSecurityFlags(CLI::App* app, Security::Options* options);

}  // namespace weir

#endif  // PROTO_TASK_SECURITY_FLAGS_H_
