#include "tests/support/store_cluster.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"

namespace weir {

StoreCluster::StoreCluster(const std::string& update, int slots) {
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(
          "job: 'test' history: 1 block_elements: 64 "
          "out_of_order_bytes: 1 shard_count: ",
          kShards, " slot_count: ", slots,
          " variable { name: 'w' shape: ", kElements, " } ",
          "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
          "table { name: 't' dim: 1 schedule { learning_rate: 1 } "
          "        initializer { zeros {} } } "
          "update { ",
          update, " }"),
      &declaration));
  std::vector<VariableSpec> variables(1);
  variables[0].name.assign(1, 'w');
  variables[0].shape = {kElements};
  layout =
      std::make_unique<Layout>(Layout::Create(variables, kShards, 64).value());
  for (int s = 0; s < kShards; ++s) {
    addresses.push_back(absl::StrCat("host", s, ":1"));
    stores.push_back(MakeStore(s, static_cast<uint64_t>(s) + 10, slots));
    transport.Serve(addresses.back(), stores.back().get());
  }
}

std::unique_ptr<Store> StoreCluster::MakeStore(int shard, uint64_t incarnation,
                                               int slots) {
  Store::Options options;
  options.incarnation = incarnation;
  std::unique_ptr<Store> store = *Store::Create(options);
  DeclareRequest request;
  *request.mutable_declaration() = declaration;
  request.set_shard(static_cast<uint32_t>(shard));
  EXPECT_TRUE(store->Declare(request).ok());
  SetSlotsRequest live;
  *live.mutable_sender() = SenderOf(0);
  for (int w = 0; w < slots; ++w) {
    live.add_slot()->set_slot(static_cast<uint32_t>(w));
    live.mutable_slot(w)->set_generation(1);
  }
  EXPECT_TRUE(store->SetSlots(live).ok());
  return store;
}

Sender StoreCluster::SenderOf(int slot) const {
  Sender sender;
  sender.set_job("test");
  sender.set_history(1);
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

}  // namespace weir
