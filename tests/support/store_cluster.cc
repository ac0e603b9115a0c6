#include "tests/support/store_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "google/protobuf/text_format.h"
#include "proto/wire/layout_io.h"

namespace weir {
namespace {

template <typename Message>
Message FromText(const std::string& text) {
  Message message;
  WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

// What `given` leaves out is as `defaults` says.
template <typename Message>
Message WithDefaults(const std::string& defaults, const Message& given) {
  auto message = FromText<Message>(defaults);
  message.MergeFrom(given);
  return message;
}

Declaration Complete(const Declaration& given) {
  auto declaration = WithDefaults<Declaration>(
      "job: 'test' history: 1 shard_count: 2 slot_count: 1 block_elements: 64 "
      "out_of_order_bytes: 1048576 update { async {} }",
      given);
  if (declaration.group_size() == 0) {
    *declaration.add_group() =
        FromText<Group>("optimizer { sgd {} } schedule { learning_rate: 1 }");
  }
  for (EmbeddingTable& table : *declaration.mutable_table()) {
    table = WithDefaults<EmbeddingTable>(
        "schedule { learning_rate: 1 } initializer { zeros {} }", table);
  }
  return declaration;
}

}  // namespace

StoreCluster::StoreCluster(const std::string& given, uint64_t seed)
    : StoreCluster(FromText<Declaration>(given), seed) {}

StoreCluster::StoreCluster(const Declaration& given, uint64_t seed)
    : declaration(Complete(given)),
      layout(std::make_unique<Layout>(*LayoutFromDeclaration(declaration))),
      transport(seed) {
  for (int s = 0; s < layout->shard_count(); ++s) {
    addresses.push_back(absl::StrCat("host", s, ":1"));
    stores.push_back(MakeStore(s, static_cast<uint64_t>(s) + 10));
    transport.Serve(addresses.back(), stores.back().get());
  }
}

std::unique_ptr<Store> StoreCluster::MakeStore(int shard,
                                               uint64_t incarnation) const {
  std::unique_ptr<Store> store = *Store::Create({.incarnation = incarnation});
  DeclareRequest request;
  *request.mutable_declaration() = declaration;
  request.set_shard(static_cast<uint32_t>(shard));
  WEIR_CHECK(store->Declare(request).ok());
  SetSlotsRequest live;
  *live.mutable_sender() = SenderOf(0);
  for (uint32_t slot = 0; slot < declaration.slot_count(); ++slot) {
    SetSlotsRequest::Slot* const granted = live.add_slot();
    granted->set_slot(slot);
    granted->set_generation(1);
  }
  WEIR_CHECK(store->SetSlots(live).ok());
  return store;
}

void StoreCluster::Replace(int shard, std::unique_ptr<Store> store) {
  transport.Stop(addresses[shard]);
  stores[shard] = std::move(store);
  transport.Serve(addresses[shard], stores[shard].get());
}

Sender StoreCluster::SenderOf(int slot) const {
  Sender sender;
  sender.set_job(declaration.job());
  sender.set_history(declaration.history());
  sender.set_layout_fingerprint(layout->fingerprint());
  sender.set_slot(static_cast<uint32_t>(slot));
  sender.set_generation(1);
  return sender;
}

ShardClientOptions StoreCluster::ClientOptions() {
  ShardClientOptions options;
  options.transport = &transport;
  options.addresses = addresses;
  return options;
}

std::vector<float> StoreCluster::Values() const {
  std::vector<float> flat(static_cast<size_t>(layout->flat_elements()));
  Want latest;
  latest.set_latest(true);
  for (int s = 0; s < layout->shard_count(); ++s) {
    for (int b = 0; b < layout->block_count(s); ++b) {
      const FlatRange range = layout->block({s, b});
      stores[s]->Pull(SenderOf(0), b, latest,
                      [&](const absl::StatusOr<PulledBlock>& pulled) {
                        std::copy_n(pulled.value().values.data(), range.count,
                                    flat.begin() + range.begin);
                      });
    }
  }
  return flat;
}

uint64_t StoreCluster::Sum(uint64_t (PsStatus::*counter)() const) const {
  uint64_t sum = 0;
  for (const auto& store : stores) {
    sum += (store->GetStatus().*counter)();
  }
  return sum;
}

}  // namespace weir
