#include "tests/support/kind_worker.h"

#include <algorithm>
#include <utility>

#include "client/cc/parameters/parameter_client.h"
#include "client/cc/parameters/table_client.h"
#include "common/base/status.h"

namespace weir {
namespace {

class BlockWorker : public KindWorker {
 public:
  explicit BlockWorker(const Options& from)
      : KindWorker(from, static_cast<size_t>(from.layout->flat_elements())) {
    ParameterClient::Options options;
    static_cast<ShardClientOptions&>(options) = from;
    options.layout = from.layout;
    options.parameters = values_.get();
    options.gradients = gradients_.get();
    client_ = ParameterClient::Create(std::move(options)).value();
  }

  absl::Status StartPull(const Want& want) override {
    return client_->StartPull(sender_, want);
  }
  absl::Status WaitPull() override { return client_->WaitPull(); }

  absl::StatusOr<ContributionResult> WaitPush() override {
    return client_->WaitReceipts();
  }

 private:
  ShardClient& client() const override { return *client_; }
  absl::Status Send(const ContributionPush& push) override {
    WEIR_RETURN_IF_ERROR(client_->BeginContribution(push));
    client_->GradientReady(0);
    return client_->FinishContribution();
  }

  std::unique_ptr<ParameterClient> client_;
};

class RowWorker : public KindWorker {
 public:
  explicit RowWorker(const Options& from)
      : KindWorker(from, from.values), versions_(from.addresses.size(), 0) {
    for (uint64_t row = 0; row < count_ / from.tables[0].dim(); ++row) {
      ids_.push_back(7 * row);
    }
    TableClient::Options options;
    static_cast<ShardClientOptions&>(options) = from;
    options.tables = from.tables;
    options.piece_bytes = from.piece_bytes;
    client_ = TableClient::Create(std::move(options)).value();
  }

  absl::Status StartPull(const Want& want) override {
    const TableClient::Wanted all = {0, ids_, values_.get()};
    return client_->StartLookup(sender_, want, /*train=*/true, {&all, 1});
  }
  absl::Status WaitPull() override {
    WEIR_ASSIGN_OR_RETURN(versions_, client_->WaitLookup());
    return absl::OkStatus();
  }

  absl::StatusOr<ContributionResult> WaitPush() override {
    return client_->WaitUpdate();
  }

 private:
  ShardClient& client() const override { return *client_; }
  absl::Status Send(const ContributionPush& push) override {
    const TableClient::Gradients all = {0, ids_, gradients_.get()};
    return client_->StartUpdate(push, versions_, {&all, 1});
  }

  std::vector<uint64_t> ids_;
  TableClient::Versions versions_;  // of the last pull
  std::unique_ptr<TableClient> client_;
};

}  // namespace

std::string NameOf(ParameterKind kind) {
  return kind == ParameterKind::kRows ? "Rows" : "Blocks";
}

std::unique_ptr<KindWorker> KindWorker::Create(ParameterKind kind,
                                               Options options) {
  if (kind == ParameterKind::kRows) {
    return std::make_unique<RowWorker>(options);
  }
  return std::make_unique<BlockWorker>(options);
}

KindWorker::KindWorker(const Options& options, size_t elements)
    : sender_(options.sender),
      count_(options.values),
      values_(options.transport->NewBuffer(elements)),
      gradients_(options.transport->NewBuffer(elements)) {
  std::fill_n(values_.get(), elements, -99.0f);
}

absl::Status KindWorker::Pull(const Want& want) {
  WEIR_RETURN_IF_ERROR(StartPull(want));
  return WaitPull();
}

absl::Status KindWorker::StartPush(ContributionPush push) {
  push.sender = sender_;
  return Send(push);
}

absl::Status KindWorker::StartPush(const ContributionPush& push,
                                   float gradient) {
  std::fill_n(gradients_.get(), count_, gradient);
  return StartPush(push);
}

absl::StatusOr<ContributionResult> KindWorker::Push(
    const ContributionPush& push, float gradient) {
  WEIR_RETURN_IF_ERROR(StartPush(push, gradient));
  return WaitPush();
}

}  // namespace weir
