// Rows as a program of the SDK names them, and as TableClient takes them: ids
// in any order with duplicates against ascending lists, names against numbers.
//
// Place: Session has one where the job has tables.
//
// Invariants
//   I1. What servers answer is written to memory of this class; the caller's is
//       touched by WaitLookup alone. So a wait may be given up at any time.
//   I2. Every contribution sends one update to every shard: End sends an empty
//       one
//   where
//       Push was not called.
//   I3. An update names the oldest version that a lookup to train from has read
//       since the update before.
// Threads: compatible.
// Errors: INVALID_ARGUMENT     a name, a size; names the table. Sync: gradients
//                              of rows of another step.
//         FAILED_PRECONDITION  a call that comes too early.
//         others               of TableClient.
#ifndef CLIENT_CC_SDK_TABLES_H_
#define CLIENT_CC_SDK_TABLES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/parameters/table_client.h"
#include "client/cc/weir_tables.h"
#include "proto/ps.pb.h"

namespace weir::sdk {

// Ascending, each once; `place[i]` is where the i-th id given is among them.
struct UniqueIds {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> place;
};
UniqueIds Unique(std::span<const uint64_t> ids);

class SessionTables {
 public:
  static absl::StatusOr<std::unique_ptr<SessionTables>> Create(
      TableClient::Options options);

  // REQUIRES (else an error): no other lookup is under way, but for one whose
  // wait was given up, which is waited for.
  absl::Status StartLookup(const Want& want, bool train,
                           std::span<const RowsWanted> wanted);
  // After CANCELLED and the like it may be repeated.
  absl::Status WaitLookup();
  // Nobody will wait for the lookup that is under way.
  void GiveUpLookup() { given_up_ = true; }

  absl::StatusOr<std::vector<TableRate>> Rates(
      const std::vector<TableSettings>& settings) const;
  // `version`: sync, that of the step which the gradients are for.
  absl::Status Check(std::span<const RowGradients> gradients,
                     std::optional<uint64_t> version) const;

  // One contribution: Begin, Push or not, End, Wait.
  void Begin(TableClient::ContributionPush push,
             std::optional<uint64_t> version);
  // Reads `gradients` before it returns. Once a contribution.
  absl::Status Push(std::span<const RowGradients> gradients);
  absl::Status End();
  absl::StatusOr<TableClient::ContributionResult> Wait() {
    return client_->WaitUpdate();
  }

 private:
  struct Asked {
    int table = 0;
    UniqueIds ids;
    std::unique_ptr<float[]> rows;  // [ids.ids, dim]
    std::span<float> out;
  };
  // Of one table, each id once.
  struct Sums {
    int table = 0;
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
  };

  explicit SessionTables(std::vector<EmbeddingTable> tables)
      : tables_(std::move(tables)) {}

  absl::StatusOr<int> Find(const std::string& table) const;
  absl::Status CheckSize(int table, const char* what, size_t floats,
                         size_t ids) const;
  Sums Sum(int table, std::span<const RowGradients> gradients) const;
  size_t dim(int table) const {
    return tables_[static_cast<size_t>(table)].dim();
  }

  const std::vector<EmbeddingTable> tables_;
  std::vector<Asked> asked_;
  bool looking_up_ = false;
  bool train_ = false;
  bool given_up_ = false;
  TableClient::Versions newest_;  // that any lookup read
  // Oldest since the last update; empty: there was no lookup.
  TableClient::Versions oldest_;
  TableClient::ContributionPush push_;
  std::optional<uint64_t> version_;  // sync: of the contribution
  bool pushed_ = true;               // the contribution's update is on its way
  std::vector<Sums> sums_;
  std::unique_ptr<TableClient> client_;  // last: its threads use what is above
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_TABLES_H_
