#include "tests/support/loopback_ps.h"

#include <utility>

#include "client/cc/transport/grpc_transport.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/check.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);

}  // namespace

LoopbackPs::LoopbackPs(Options the_options) : options(the_options) {
  Store::Options store_options;
  store_options.incarnation = 77;
  store_options.files = options.files;
  store_options.checkpoint_root = options.checkpoint_root;
  if (options.shared_memory) {
    arena = *SharedArena::Create();
    store_options.arena = arena.get();
  }
  store = *Store::Create(store_options);
  Serve();
  transport = MakeGrpcTransport({.own_connections = true});
  if (options.shared_memory) {
    transport = MakeShmTransport(std::move(transport), /*fall_back=*/false);
  }
  link = transport->Connect(address());
  data = transport->ConnectData(address());
  if (!options.declare) {
    return;
  }
  DeclareRequest request;
  *request.mutable_declaration() = MakeDeclaration();
  const auto reply = link->Declare(request, kTimeout);
  if (!reply.ok()) {
    std::fprintf(stderr, "%s\n", reply.status().ToString().c_str());
  }
  WEIR_CHECK(reply.ok());
  fingerprint_ = reply->layout_fingerprint();
  for (int slot = 0; slot < options.slot_count; ++slot) {
    SetSlot(slot, /*generation=*/1, /*retired=*/false);
  }
}

void LoopbackPs::Serve() {
  PsServer::Options server_options;
  server_options.address = address_;
  server_options.queue_count = options.queue_count;
  server_options.shared_arena = arena.get();
  server_options.on_shutdown = [this](const absl::Status& why) {
    shut_down_why_ = why;
    shut_down_ = true;
  };
  auto created = PsServer::Create(server_options, store.get());
  if (!created.ok()) {
    std::fprintf(stderr, "%s\n", created.status().ToString().c_str());
  }
  server = *std::move(created);
  address_ = "127.0.0.1:" + std::to_string(server->port());
}

LoopbackPs::~LoopbackPs() {
  link.reset();
  data.reset();
  server.reset();
}

std::string LoopbackPs::address() const { return address_; }

Declaration LoopbackPs::MakeDeclaration() const {
  Declaration declaration;
  declaration.set_job("test");
  declaration.set_history(1);
  declaration.set_shard_count(1);
  declaration.set_block_elements(static_cast<uint64_t>(options.block_elements));
  declaration.set_slot_count(static_cast<uint32_t>(options.slot_count));
  declaration.set_out_of_order_bytes(options.out_of_order_bytes);
  Variable* variable = declaration.add_variable();
  variable->set_name("w");
  variable->add_shape(options.block_elements * options.block_count - 16);
  Group* group = declaration.add_group();
  group->mutable_optimizer()->mutable_sgd();
  group->mutable_schedule()->set_learning_rate(1.0);
  if (options.table_dim > 0) {
    EmbeddingTable* table = declaration.add_table();
    table->set_name("t");
    table->set_dim(static_cast<uint32_t>(options.table_dim));
    table->mutable_initializer()->mutable_zeros();
    table->mutable_optimizer()->mutable_sgd();
    table->mutable_schedule()->set_learning_rate(1.0);
  }
  if (options.sync_contributions > 0) {
    declaration.mutable_update()->mutable_sync()->set_contributions(
        static_cast<uint32_t>(options.sync_contributions));
  } else if (options.staleness_bound >= 0) {
    declaration.mutable_update()->mutable_bounded_staleness()->set_bound(
        static_cast<uint32_t>(options.staleness_bound));
  } else {
    declaration.mutable_update()->mutable_async();
  }
  return declaration;
}

Sender LoopbackPs::SenderOf(int slot, uint32_t generation) const {
  Sender sender;
  sender.set_job("test");
  sender.set_history(1);
  sender.set_layout_fingerprint(fingerprint_);
  sender.set_slot(static_cast<uint32_t>(slot));
  sender.set_generation(generation);
  return sender;
}

void LoopbackPs::SetSlot(int slot, uint32_t generation, bool retired) {
  SetSlotsRequest request;
  *request.mutable_sender() = SenderOf(0);
  SetSlotsRequest::Slot* const one = request.add_slot();
  one->set_slot(static_cast<uint32_t>(slot));
  one->set_generation(generation);
  one->set_retired(retired);
  WEIR_CHECK(link->SetSlots(request, kTimeout).ok());
}

GradientChunk LoopbackPs::Chunk(int slot, uint64_t sequence, int block) const {
  GradientChunk chunk;
  *chunk.mutable_sender() = SenderOf(slot);
  chunk.mutable_push()->set_sequence(sequence);
  chunk.set_block(static_cast<uint32_t>(block));
  return chunk;
}

int64_t LoopbackPs::elements(int block) const {
  return options.block_elements - (block + 1 == options.block_count ? 16 : 0);
}

std::vector<float> LoopbackPs::Values(int block) const {
  std::vector<float> values;
  Want want;
  want.set_latest(true);
  store->Pull(
      SenderOf(0), block, want, [&values](absl::StatusOr<PulledBlock> pulled) {
        WEIR_CHECK(pulled.ok());
        values.assign(pulled->values.data(),
                      pulled->values.data() + pulled->values.elements());
      });
  WEIR_CHECK(!values.empty());
  return values;
}

void LoopbackPs::Kill() { server->Stop(std::chrono::milliseconds(0)); }

void LoopbackPs::BreakConnections() {
  Kill();
  server.reset();
  Serve();
}

std::span<const char> BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

std::vector<float> FloatsOf(const Payload& payload) {
  std::vector<float> values(payload.bytes() / sizeof(float));
  payload.CopyTo(reinterpret_cast<char*>(values.data()));
  return values;
}

}  // namespace weir
