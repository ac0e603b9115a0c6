// An object store in a simulated world: it is slow, and at times it does not
// say what became of a call.
//
// Place: where the checkpoints of a simulated job are, as in an S3 store
// (common/objects/s3_store.h), whose promises it makes.
//
// Invariants
//   I1. A call takes effect as a whole at one point of its time. A process that
//       is killed in the middle may have had its effect or not.
//   I2. A call that ends with UNAVAILABLE was carried out, or not.
// Threads: for fibres.
#ifndef SIM_OBJECT_STORE_H_
#define SIM_OBJECT_STORE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/io/object_store.h"

namespace weir::sim {

struct StoreFaults {
  std::chrono::nanoseconds delay_max{5'000'000};
  // One call in so many ends with UNAVAILABLE; 0: none does.
  uint64_t unavailable_one_in = 0;
  bool full = false;  // what writes ends with RESOURCE_EXHAUSTED
};

class SimObjectStore : public ObjectStore {
 public:
  void SetFaults(const StoreFaults& faults) { faults_ = faults; }
  // While it is set calls take no time and do not fail, so that no other fibre
  // runs: for whoever looks at the world from outside.
  void SetAtOnce(bool at_once) { at_once_ = at_once; }
  uint64_t unavailable() const { return unavailable_; }
  uint64_t writes() const { return writes_; }
  // Another number whenever an object was written or removed.
  uint64_t changes() const { return changes_; }

  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& name) override;
  absl::StatusOr<std::string> ReadAll(const std::string& name) override;
  absl::StatusOr<FileInfo> Stat(const std::string& name) override;
  absl::Status WriteAtomically(const std::string& name,
                               absl::string_view contents) override;
  absl::Status WriteNew(const std::string& name,
                        absl::string_view contents) override;
  absl::StatusOr<std::unique_ptr<ObjectWriter>> BeginWrite(
      const std::string& name, int64_t bytes_expected) override;
  absl::Status Append(const std::string& name,
                      absl::string_view contents) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) override;
  absl::Status MakeDirectories(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status DropUnfinished(const std::string& directory) override;

 private:
  using Contents = std::shared_ptr<const std::string>;

  // Spends the time of a call, with `effect` in the middle of it.
  template <typename Effect>
  absl::Status Call(const std::string& name, Effect effect);
  // Of a call that writes `name`: an error if the store is full.
  absl::Status BeginChange(const std::string& name);
  // Whether a name begins with this one and a slash.
  bool HasBelow(const std::string& directory) const;

  std::map<std::string, Contents> objects_;
  StoreFaults faults_;
  bool at_once_ = false;
  uint64_t unavailable_ = 0;
  uint64_t writes_ = 0;  // that were carried out
  uint64_t changes_ = 0;
};

}  // namespace weir::sim

#endif  // SIM_OBJECT_STORE_H_
