#include "tests/server/ps/consistency/unit_tester.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/ps/rows/id_list_cache.h"
#include "tests/server/ps/rows/table_store_tester.h"

namespace weir {
namespace {

Declaration Job(const std::string& update, int slots, const std::string& more) {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: 64 }"
      "group { optimizer { sgd {} } schedule { learning_rate: 0.125 } }"
      "table { name: 't' dim: 1 schedule { learning_rate: 0.125 }"
      "        initializer { zeros {} } }"
      "update { ",
      update, " } slot_count: ", slots, " ", more));
}

std::vector<uint64_t> AllIds() {
  std::vector<uint64_t> ids(UnitTester::kValues);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

template <class Common>
void Fill(const UnitTester::Contribution& from, Common* chunk) {
  chunk->mutable_sender()->set_generation(from.generation);
  chunk->mutable_push()->set_weight(from.weight);
}

}  // namespace

UnitTester::UnitTester(UnitKind the_kind, const std::string& update, int slots,
                       const std::string& more)
    : kind(the_kind),
      ps(std::make_shared<StoreTester>(Job(update, slots, more))) {}

UnitTester::UnitTester(UnitKind the_kind, const UnitTester& same_shard)
    : kind(the_kind), ps(same_shard.ps) {}

absl::StatusOr<Receipt> UnitTester::Push(const Contribution& contribution,
                                         const std::vector<float>& gradient) {
  const auto& [slot, sequence, base_version, index, generation, weight] =
      contribution;
  if (kind == UnitKind::kBlock) {
    GradientChunk chunk = ps->Chunk(slot, sequence, 0, base_version, index);
    Fill(contribution, &chunk);
    return ps->Push(chunk, gradient);
  }
  PushRowsChunk chunk = Piece(*ps, slot, sequence, base_version, index);
  Fill(contribution, &chunk);
  if (!gradient.empty()) {
    *chunk.add_list() = ListOf(0, AllIds());
  }
  const std::shared_ptr<UpdateResult> result = Apply(*ps, chunk, gradient);
  if (!result->done) {
    return absl::UnknownError("the push was not answered");
  }
  if (!result->reply.ok()) {
    return result->reply.status();
  }
  return result->reply->receipt();
}

Receipt::Outcome UnitTester::Outcome(const Contribution& contribution,
                                     float value) {
  const absl::StatusOr<Receipt> receipt = Push(contribution, value);
  EXPECT_TRUE(receipt.ok()) << receipt.status();
  return receipt.ok() ? receipt->outcome() : Receipt::NONE;
}

std::shared_ptr<UnitTester::Wait> UnitTester::Pull(const Want& want) {
  auto wait = std::make_shared<Wait>();
  const auto end = [wait](const absl::Status& error, uint64_t version,
                          bool not_yet) {
    EXPECT_FALSE(wait->done);  // exactly once
    wait->done = true;
    wait->error = error;
    wait->version = version;
    wait->not_yet = not_yet;
  };
  if (kind == UnitKind::kBlock) {
    ps->store->Pull(ps->SenderOf(0, 0), 0, want,
                    [wait, end](const absl::StatusOr<PulledBlock>& block) {
                      if (!block.ok()) {
                        end(block.status(), 0, false);
                        return;
                      }
                      end(absl::OkStatus(), block->version, block->not_yet);
                      if (block->values) {
                        wait->values.assign(block->values.data(),
                                            block->values.data() + kValues);
                      }
                    });
    return wait;
  }
  PullRowsChunk request = Request(*ps, 0, ListOf(0, AllIds()), want);
  request.mutable_sender()->set_generation(0);
  request.set_train(false);
  ps->store->PullRows(
      request, [wait, end](const absl::StatusOr<PulledRows>& rows) {
        if (!rows.ok()) {
          end(rows.status(), 0, false);
          return;
        }
        end(absl::OkStatus(), rows->header.version(), rows->header.not_yet());
        if (rows->rows) {
          wait->values.assign(rows->rows.data(), rows->rows.data() + kValues);
        }
      });
  return wait;
}

uint64_t UnitTester::mark(int slot) const {
  // The other unit of the shard may be behind.
  return ps->store->Hello().slot(slot).next_sequence_max();
}

uint64_t UnitTester::bytes() const {
  constexpr uint64_t kGradient = kValues * sizeof(float);
  if (kind == UnitKind::kBlock) {
    return kGradient;
  }
  const auto ids = std::make_shared<const std::vector<uint64_t>>(
      std::vector<uint64_t>(kValues));
  return kGradient + static_cast<uint64_t>(BytesOf(ids));
}

uint64_t UnitTester::bytes_waiting() const {
  return ps->store->GetStatus().out_of_order_bytes();
}

}  // namespace weir
