// An object store in a simulated world: it is slow, and at times it does not
// say what became of a call.
//
// Place: where the checkpoints of a simulated job are, as in an S3 store
// (common/objects/s3_store.h), whose promises it makes.
//
// Threads: for fibres.
#ifndef SIM_PLACES_OBJECT_STORE_H_
#define SIM_PLACES_OBJECT_STORE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/io/object_store.h"
#include "sim/places/place.h"

namespace weir::sim {

class SimObjectStore : public ObjectStore, public Place {
 public:
  bool Rot(const std::string& name) override;

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

  absl::Status CheckRoom(const std::string& name) const;
  void Put(const std::string& name, absl::string_view contents);
  // Whether a name begins with this one and a slash.
  bool HasBelow(const std::string& directory) const;

  std::map<std::string, Contents> objects_;
};

}  // namespace weir::sim

#endif  // SIM_PLACES_OBJECT_STORE_H_
