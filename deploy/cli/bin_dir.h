// Finds the folder in which the other programs of Weir are.
#ifndef DEPLOY_CLI_BIN_DIR_H_
#define DEPLOY_CLI_BIN_DIR_H_

#include <string>

namespace weir {

// Returns the environment's WEIR_BIN_DIR if it is set. Else returns the root of
// the tree of binaries that holds this program, which is in deploy/cli/ of it.
// Threads: to be called before there are others, since it reads the
// environment.
std::string BinDir();

}  // namespace weir

#endif  // DEPLOY_CLI_BIN_DIR_H_
