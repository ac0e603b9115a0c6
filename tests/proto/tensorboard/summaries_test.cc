// Records that TensorBoard's own code has decoded, to the byte.
#include "proto/tensorboard/summaries.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "proto/tensorboard/event_file.h"

namespace weir {
namespace {

// The record of an event, in hexadecimal digits.
std::string Record(double wall_time, int64_t step,
                   const tensorboard::Summary& summary) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_step(step);
  *event.mutable_summary() = summary;
  return absl::BytesToHexString(EventRecord(event.SerializeAsString()));
}

TEST(SummariesTest, AScalar) {
  tensorboard::Summary summary;
  AddScalar("loss", 0.5F, /*first=*/true, &summary);
  EXPECT_EQ(Record(1700000001, 1, summary),
            "300000000000000095f5d05f"
            "0900004040fc54d94110012a230a210a046c6f7373420a080112002a04000000"
            "3f4a0d0a090a077363616c6172732001"
            "914bd0aa");
}

TEST(SummariesTest, AHistogram) {
  Histogram histogram;
  histogram.set_max(1.0F);
  histogram.add_count(2);
  tensorboard::Summary summary;
  AddHistogram("h", histogram, /*first=*/true, &summary);
  EXPECT_EQ(Record(1700000003, 3, summary),
            "4c00000000000000f5d4a2a0"
            "090000c040fc54d94110032a3f0a3d0a01684226080212081202080112020803"
            "22180000000000000000000000000000f03f00000000000000404a100a0c0a0a"
            "686973746f6772616d732002"
            "8213f532");
}

// [left edge, right edge, how many numbers] of each bucket.
std::vector<double> RowsOf(const Histogram& histogram) {
  tensorboard::Summary summary;
  AddHistogram("h", histogram, /*first=*/false, &summary);
  EXPECT_EQ(summary.value_size(), 1);
  EXPECT_FALSE(summary.value(0).has_metadata());
  const std::string& content = summary.value(0).tensor().content();
  std::vector<double> rows(content.size() / sizeof(double));
  std::memcpy(rows.data(), content.data(), content.size());
  return rows;
}

TEST(SummariesTest, BucketsTouchAndEqualNumbersHaveAWidth) {
  Histogram histogram;
  histogram.set_min(-1.0F);
  histogram.set_max(2.0F);
  histogram.add_count(7);
  histogram.add_count(0);
  EXPECT_EQ(RowsOf(histogram), (std::vector<double>{-1, 0.5, 7, 0.5, 2, 0}));
  histogram.Clear();
  histogram.set_min(0.25F);
  histogram.set_max(0.25F);
  histogram.add_count(4);
  EXPECT_EQ(RowsOf(histogram), (std::vector<double>{-0.25, 0.75, 4}));
  tensorboard::Summary none;
  histogram.clear_count();
  AddHistogram("h", histogram, /*first=*/true, &none);
  EXPECT_EQ(none.value_size(), 0);
}

TEST(SummariesTest, AText) {
  tensorboard::Summary summary;
  AddText("job", "a", &summary);
  EXPECT_EQ(Record(1700000004, 0, summary),
            "2b00000000000000861bc34b"
            "0900000041fc54d9412a200a1e0a036a6f62420b08071204120208014201614a"
            "0a0a060a04746578742002"
            "d3b7b3f3");
}

TEST(SummariesTest, Hyperparameters) {
  Hparams hparams;
  hparams["lr"].set_number_value(0.5);
  tensorboard::Summary summary;
  AddHparams(hparams, 1700000000, &summary);
  EXPECT_EQ(Record(1700000005, 0, summary),
            "6400000000000000435f1cdf"
            "0900004041fc54d9412a590a570a1c5f68706172616d735f2f73657373696f6e"
            "5f73746172745f696e666f420a080112002a04000000004a2b0a290a07687061"
            "72616d73121e08001a1a0a0f0a026c72120911000000000000e03f29000000"
            "40fc54d941"
            "f490a2de");
}

TEST(SummariesTest, AnEndAndALayoutAreOfTheirPlugins) {
  tensorboard::Summary summary;
  AddEnd(/*success=*/false, 1700000009, &summary);
  AddLayout({{"waits", "phases/.*"}}, &summary);
  ASSERT_EQ(summary.value_size(), 2);
  tensorboard::HparamsData data;
  const auto& plugin = summary.value(0).metadata().plugin_data();
  EXPECT_EQ(plugin.plugin_name(), "hparams");
  ASSERT_TRUE(data.ParseFromString(plugin.content()));
  EXPECT_EQ(data.session_end_info().status(), 2);
  EXPECT_EQ(data.session_end_info().end_time_secs(), 1700000009);
  tensorboard::Layout layout;
  ASSERT_TRUE(layout.ParseFromString(summary.value(1).tensor().string_val(0)));
  EXPECT_EQ(layout.category(0).chart(0).multiline().tag(0), "phases/.*");
}

TEST(SummariesTest, FieldsHaveTheirPaths) {
  tensorboard::SessionEnd message;
  message.set_status(1);
  message.set_end_time_secs(0.5);
  Hparams hparams;
  AddFields(message, "end", &hparams);
  ASSERT_EQ(hparams.size(), 2U);
  EXPECT_EQ(hparams["end.status"].number_value(), 1);
  EXPECT_EQ(hparams["end.end_time_secs"].number_value(), 0.5);
}

}  // namespace
}  // namespace weir
