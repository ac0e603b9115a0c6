#include "proto/task/grpc_log.h"

#include <grpc/support/log.h>

#include "common/base/logging.h"

namespace weir {

void LogGrpcAsDebug() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    // A module of its own: "grpc=debug" shows these lines without ours.
    Log(LogLevel::kDebug, LogModuleOf("grpc/log"), "{}:{} {}", line->file,
        line->line, line->message);
  });
}

}  // namespace weir
