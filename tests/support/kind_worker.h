// One worker's parameters of one kind, blocks or rows, as a contract sees them:
// it pulls all values, and pushes a gradient for each.
//
// Place: contracts that run over both kinds. A BlockWorker drives a
// ParameterClient, a RowWorker a TableClient; the rest of a test does not know
// which.
//
// Threads: compatible, but for Interrupt and counters.
#ifndef TESTS_SUPPORT_KIND_WORKER_H_
#define TESTS_SUPPORT_KIND_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/parameters/contribution.h"
#include "client/cc/parameters/shard_client.h"
#include "common/job/layout.h"
#include "proto/ps.pb.h"

namespace weir {

enum class ParameterKind : int { kBlocks, kRows };
std::string NameOf(ParameterKind kind);  // "Blocks", "Rows"

class KindWorker {
 public:
  struct Options : ShardClientOptions {
    Sender sender;
    const Layout* layout = nullptr;      // of one variable; borrowed
    std::vector<EmbeddingTable> tables;  // the first one is used
    // The variable's elements. As many floats of rows, whose ids are 0, 7, 14
    // and so on.
    size_t values = 0;
    int64_t piece_bytes = 1 << 20;  // of rows, as in TableClient::Options
  };

  static std::unique_ptr<KindWorker> Create(ParameterKind kind,
                                            Options options);
  virtual ~KindWorker() = default;

  // Pulls and pushes for another slot from now on. REQUIRES: none is under way.
  void SpeakFor(const Sender& sender) { sender_ = sender; }

  virtual absl::Status StartPull(const Want& want) = 0;
  virtual absl::Status WaitPull() = 0;
  absl::Status Pull(const Want& want);

  // Pushes what gradients() has. It fills in the sender.
  absl::Status StartPush(ContributionPush push);
  virtual absl::StatusOr<ContributionResult> WaitPush() = 0;
  // Pushes `gradient` for every value.
  absl::Status StartPush(const ContributionPush& push, float gradient);
  absl::StatusOr<ContributionResult> Push(const ContributionPush& push,
                                          float gradient);

  // As last pulled; -99 before.
  std::vector<float> values() const {
    return {values_.get(), values_.get() + count_};
  }
  std::span<float> gradients() { return {gradients_.get(), count_}; }

  void Interrupt(const absl::Status& status) { client().Interrupt(status); }
  ClientCounters counters() const { return client().counters(); }

 protected:
  // Both buffers get `elements` floats, of which `options.values` are used.
  KindWorker(const Options& options, size_t elements);

  virtual ShardClient& client() const = 0;
  virtual absl::Status Send(const ContributionPush& push) = 0;

  Sender sender_;
  const size_t count_;
  const std::shared_ptr<float> values_;
  const std::shared_ptr<float> gradients_;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_KIND_WORKER_H_
