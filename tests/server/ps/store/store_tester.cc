#include "tests/server/ps/store/store_tester.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "common/base/check.h"
#include "common/math/top_k.h"
#include "google/protobuf/text_format.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/wire/layout_io.h"
#include "proto/wire/value_encoding.h"
#include "tests/common/temp_dir.h"

namespace weir {

Declaration ParseDeclaration(const std::string& text) {
  Declaration declaration;
  declaration.set_job("test");
  declaration.set_history(1);
  declaration.set_shard_count(1);
  declaration.set_block_elements(64);
  declaration.set_slot_count(1);
  declaration.set_out_of_order_bytes(1 << 20);
  Declaration parsed;
  WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(text, &parsed));
  declaration.MergeFrom(parsed);
  return declaration;
}

Payload MakePayload(const std::vector<float>& values, size_t piece_bytes,
                    Encoding encoding) {
  if (values.empty()) {
    return Payload();
  }
  auto bytes = std::make_shared<std::vector<char>>();
  if (encoding == TOP_K) {  // of all
    bytes->resize(TopKBytesMax(values.size()));
    const std::vector<uint32_t> places =
        LargestPlaces(values.data(), values.size(), values.size());
    bytes->resize(EncodeTopK(values.data(), places, bytes->data()));
  } else {
    bytes->resize(EncodedBytes(encoding, values.size()));
    EncodeFloats(values.data(), values.size(), encoding, bytes->data());
  }
  std::vector<std::span<const char>> pieces;
  const size_t step = piece_bytes == 0 ? bytes->size() : piece_bytes;
  for (size_t at = 0; at < bytes->size(); at += step) {
    pieces.emplace_back(bytes->data() + at, std::min(step, bytes->size() - at));
  }
  return Payload(std::move(pieces), bytes);
}

void* CountingArena::Allocate(size_t bytes) {
  bytes_ += static_cast<int64_t>(bytes);
  bytes_max_ = std::max(bytes_max_.load(), bytes_.load());
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}

void CountingArena::Free(void* memory, size_t bytes) {
  bytes_ -= static_cast<int64_t>(bytes);
  std::free(memory);
}

void* EndingArena::Allocate(size_t bytes) {
  if (left == 0) {
    throw std::bad_alloc();
  }
  --left;
  return CountingArena::Allocate(bytes);
}

StoreTester::StoreTester(const Declaration& the_declaration, uint32_t the_shard,
                         bool activate, Arena* arena)
    : declaration(the_declaration), shard(the_shard) {
  Store::Options options;
  options.clock = &clock;
  options.arena = arena;
  options.incarnation = 7;
  options.checkpoint_root = CheckpointRoot();
  store = *Store::Create(options);
  DeclareRequest request;
  *request.mutable_declaration() = declaration;
  request.set_shard(shard);
  const absl::StatusOr<DeclareReply> reply = store->Declare(request);
  if (!reply.ok()) {
    std::fprintf(stderr, "%s\n", reply.status().ToString().c_str());
  }
  WEIR_CHECK(reply.ok());
  fingerprint_ = reply->layout_fingerprint();
  if (activate) {
    for (uint32_t w = 0; w < declaration.slot_count(); ++w) {
      WEIR_CHECK(SetSlot(static_cast<int>(w), 1, false).ok());
    }
  }
}

Sender StoreTester::SenderOf(int slot, uint32_t generation) const {
  Sender sender;
  sender.set_job(declaration.job());
  sender.set_history(declaration.history());
  sender.set_layout_fingerprint(fingerprint_);
  sender.set_slot(static_cast<uint32_t>(slot));
  sender.set_generation(generation);
  return sender;
}

GradientChunk StoreTester::Chunk(int slot, uint64_t sequence, int block,
                                 uint64_t base_version,
                                 uint32_t contribution) const {
  GradientChunk chunk;
  *chunk.mutable_sender() = SenderOf(slot);
  chunk.set_block(static_cast<uint32_t>(block));
  chunk.mutable_push()->set_sequence(sequence);
  chunk.mutable_push()->set_base_version(base_version);
  chunk.mutable_push()->set_index_in_step(contribution);
  return chunk;
}

absl::StatusOr<Receipt> StoreTester::Push(const GradientChunk& chunk,
                                          const std::vector<float>& gradient) {
  return store->Push(chunk, MakePayload(gradient, 0, chunk.encoding()));
}

absl::StatusOr<Receipt> StoreTester::PushConstant(const GradientChunk& chunk,
                                                  float value) {
  return Push(chunk, std::vector<float>(
                         elements(static_cast<int>(chunk.block())), value));
}

PulledBlock StoreTester::Latest(int block) {
  const std::shared_ptr<PullResult> result = Pull(0, block, LatestWant());
  WEIR_CHECK(result->done && result->answer.ok());
  return *result->answer;
}

std::vector<float> StoreTester::Values(int block) {
  const PulledBlock pulled = Latest(block);
  return std::vector<float>(pulled.values.data(),
                            pulled.values.data() + pulled.values.elements());
}

absl::Status StoreTester::SetSlot(int slot, uint32_t generation, bool retired) {
  SetSlotsRequest request;
  *request.mutable_sender() = SenderOf(0, 0);
  SetSlotsRequest::Slot* const entry = request.add_slot();
  entry->set_slot(static_cast<uint32_t>(slot));
  entry->set_generation(generation);
  entry->set_retired(retired);
  return store->SetSlots(request);
}

absl::Status StoreTester::Restore(const Declaration& the_declaration,
                                  const std::string& checkpoint_dir) {
  RestoreRequest request;
  *request.mutable_declaration() = the_declaration;
  request.set_shard(shard);
  request.set_checkpoint(NameOf(checkpoint_dir));
  const absl::StatusOr<DeclareReply> reply = store->Restore(request);
  if (reply.ok()) {
    declaration = the_declaration;
    fingerprint_ = reply->layout_fingerprint();
  }
  return reply.status();
}

std::shared_ptr<StoreTester::PullResult> StoreTester::Pull(int slot, int block,
                                                           const Want& want) {
  auto result = std::make_shared<PullResult>();
  store->Pull(SenderOf(slot, 0), block, want,
              [result](absl::StatusOr<PulledBlock> answer) {
                WEIR_CHECK(!result->done);  // exactly once
                result->done = true;
                result->answer = std::move(answer);
              });
  return result;
}

StoreTester::SnapshotResult StoreTester::Snapshot(const std::string& directory,
                                                  int64_t version) {
  SnapshotRequest request;
  *request.mutable_sender() = SenderOf(0, 0);
  request.set_checkpoint(NameOf(directory));
  if (version >= 0) {
    request.set_version(static_cast<uint64_t>(version));
  }
  SnapshotResult result;
  store->Snapshot(
      request,
      [&result](absl::StatusOr<SnapshotReply> reply) {
        if (reply.ok()) {
          result.replies.push_back(*std::move(reply));
        } else {
          WEIR_CHECK(result.error.ok());  // once
          result.error = reply.status();
        }
      },
      [](const std::function<void()>& write) { write(); });
  return result;
}

int64_t StoreTester::elements(int block) const {
  return LayoutFromDeclaration(declaration)
      ->block({static_cast<int>(shard), block})
      .count;
}

int StoreTester::block_count() const {
  return LayoutFromDeclaration(declaration)
      ->block_count(static_cast<int>(shard));
}

Want LatestWant(uint64_t clock) {
  Want want;
  want.set_latest(true);
  want.set_clock(clock);
  return want;
}

Want VersionWant(uint64_t version, uint32_t timeout_ms) {
  Want want;
  want.set_version(version);
  want.set_timeout_ms(timeout_ms);
  return want;
}

absl::Status CommitManifest(const std::string& dir,
                            const Declaration& declaration,
                            const std::vector<ShardFile>& shard_files) {
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name(dir.substr(dir.rfind('/') + 1));
  manifest.set_step(5);
  *manifest.mutable_declaration() = declaration;
  for (const ShardFile& file : shard_files) {
    *manifest.add_file() = file;
  }
  return WriteManifest(Files::Real(), dir, manifest);
}

}  // namespace weir
