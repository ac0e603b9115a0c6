#include "proto/task/security_flags.h"

#include "common/flags/flags.h"

namespace weir {

void AddSecurityFlags(CLI::App* app, Security::Options* options) {
  AddFlag(app, "--insecure", &options->insecure,
          "no encryption, and nobody proves who it is; default "
          "WEIR_INSECURE");
  AddOption(app, "--tls_dir", &options->tls_dir,
            "directory with tls.crt, tls.key and ca.crt, which are read "
            "again when they change; default WEIR_TLS_DIR");
  AddOption(app, "--identity", &options->identity_rules,
            "with --tls_dir: \"<URI>=<role>\", what a name in a "
            "certificate is (spiffe://td/ns/n/sa/w=worker); may be "
            "given several times; default WEIR_IDENTITY");
}

}  // namespace weir
