// Finds the folder in which the other programs of Weir are.
#ifndef DEPLOY_CLI_BIN_DIR_H_
#define DEPLOY_CLI_BIN_DIR_H_

#include <string>

namespace weir {

// Returns the environment's WEIR_BIN_DIR if it is set, else BinDirOf(this
// program).
// Threads: to be called before there are others, since it reads the
// environment.
std::string BinDir();

// Returns the root of the tree of binaries that holds the program with this
// path, which no link leads to. A build and a wheel have the command line in
// deploy/cli/ of the tree. A bundle and an image have all programs in the root,
// and deploy/cli/weir_cli there is a link.
std::string BinDirOf(const std::string& program);

}  // namespace weir

#endif  // DEPLOY_CLI_BIN_DIR_H_
