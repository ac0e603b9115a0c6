// Translates rows between a program of the SDK and TableClient. The program
// gives ids in any order, with repeats, and names of tables; TableClient takes
// ascending lists and numbers.
//
// Place: Session has one if the job has tables.
//
// Invariants
//   I1. What servers answer is written to memory of this class; only WaitLookup
//       touches the caller's memory. So a wait may be given up at any time.
//   I2. Every contribution sends one update to every shard. If Push was not
//       called, End sends an empty one.
//   I3. An update names the oldest version that a lookup to train from has read
//       since the update before.
// Threads: compatible.
// Errors: INVALID_ARGUMENT     a name or a size is wrong; names the table. In
//                              sync also: gradients of rows of another step.
//         FAILED_PRECONDITION  a call that comes too early.
//         others               as TableClient.
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
#include "common/job/unique_ids.h"
#include "proto/ps.pb.h"

namespace weir::sdk {

class SessionTables {
 public:
  // `client` is borrowed, and must be destroyed before this: its threads write
  // to memory of this class.
  SessionTables(std::vector<EmbeddingTable> tables, size_t shards,
                TableClient* client)
      : tables_(std::move(tables)), newest_(shards, 0), client_(client) {}

  // Starts a lookup. A lookup that was given up is waited for first;
  // FAILED_PRECONDITION if another one is under way.
  absl::Status StartLookup(const Sender& sender, const Want& want, bool train,
                           std::span<const RowsWanted> wanted);
  // Waits for the lookup and writes the rows. If the caller ended the wait
  // (CANCELLED), it may be repeated.
  absl::Status WaitLookup();
  // Says that nobody will wait for the lookup that is under way.
  void GiveUpLookup() { given_up_ = true; }

  // The learning rates of `settings`, with tables' numbers.
  absl::StatusOr<std::vector<TableRate>> Rates(
      const std::vector<TableSettings>& settings) const;
  // Checks that `gradients` can be pushed. `version` (sync only) is the version
  // of the step that they are for.
  absl::Status Check(std::span<const RowGradients> gradients,
                     std::optional<uint64_t> version) const;

  // One contribution: Begin, Push or not, End.
  void Begin(ContributionPush push, std::optional<uint64_t> version);
  // Reads `gradients` before it returns. May be called once for a contribution.
  absl::Status Push(std::span<const RowGradients> gradients);
  absl::Status End();

 private:
  struct Asked {
    int table = 0;
    UniqueIds ids;
    std::unique_ptr<float[]> rows;  // [ids.ids(), dim]
    std::span<float> out;
  };
  // The gradients of one table, each id once.
  struct Sums {
    int table = 0;
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
  };

  absl::StatusOr<int> Find(const std::string& table) const;
  static absl::Status CheckCount(size_t ids);
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
  TableClient::Versions newest_;  // that the last lookup read
  // The oldest since the last update; empty if there was no lookup to train.
  TableClient::Versions oldest_;
  ContributionPush push_;
  std::optional<uint64_t> version_;  // sync: of the contribution
  bool pushed_ = true;               // this contribution's update was sent
  std::vector<Sums> sums_;
  TableClient* const client_;
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_TABLES_H_
