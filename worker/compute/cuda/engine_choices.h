// A file of what was found to be the fastest, so that it is timed once on a
// machine and not at every start.
//
// Place: CudnnConvolution keeps the names of cuDNN's engines in it.
//
// Each line is "key<tab>choice"; the last line of a key counts. Processes that
// share the file only append whole lines to it.
// Threads: compatible. Errors: none. What cannot be read is timed again, and
// what cannot be written is not kept; the log says so once.
#ifndef WORKER_COMPUTE_CUDA_ENGINE_CHOICES_H_
#define WORKER_COMPUTE_CUDA_ENGINE_CHOICES_H_

#include <map>
#include <string>

namespace weir::cuda {

class EngineChoices {
 public:
  // `path`: empty for none.
  explicit EngineChoices(std::string path);

  // Returns the choice, or "" where there is none.
  std::string Find(const std::string& key) const;
  // REQUIRES: neither has a tab or a line feed.
  void Add(const std::string& key, const std::string& choice);

 private:
  std::string path_;        // empty once it could not be written
  bool half_line_ = false;  // the file does not end with a line feed
  std::map<std::string, std::string> choices_;
};

// convolutions.txt in the folder of the user's caches,
// $XDG_CACHE_HOME/weir or ~/.cache/weir; "" where neither variable says one.
std::string DefaultEngineChoicesPath();

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_ENGINE_CHOICES_H_
