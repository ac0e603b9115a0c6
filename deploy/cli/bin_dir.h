// Where the other programs are.
#ifndef DEPLOY_CLI_BIN_DIR_H_
#define DEPLOY_CLI_BIN_DIR_H_

#include <string>

namespace weir {

// WEIR_BIN_DIR, or where this binary's own tree of binaries begins.
std::string BinDir();

}  // namespace weir

#endif  // DEPLOY_CLI_BIN_DIR_H_
