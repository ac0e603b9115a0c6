// The small files of a work directory, of which a crash may have left any part:
// train.jsonl, eval.jsonl, ENDED and DONE.
#include <cmath>
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/evaluated.h"
#include "server/chief/state/train_log.h"
#include "tests/fuzz/memory_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto line = weir::ParseTrainLine(text)) {
    WEIR_CHECK(!std::isnan(line->seconds));
  }
  weir::ParseEnding(text).IgnoreError();
  weir::MemoryFiles files;
  files.Put("/run/eval.jsonl", text);
  files.Put("/run/DONE", text);
  for (const std::string& name : weir::EvaluatedCheckpoints(&files, "/run")) {
    WEIR_CHECK(name.size() <= text.size());
  }
  weir::JobIsDone(&files, "/run", "");
  return 0;
}
