#include "server/ps/ps_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(PsMetricsTest, AStatusBecomesMetrics) {
  PsStatus status;
  status.set_chunks_accepted(10);
  status.set_chunks_duplicate(2);
  for (int i = 0; i < 4; ++i) {
    status.add_staleness_bucket(i + 1);  // 1 of 0, 2 of 1, 3 of 2, 4 of more
  }
  status.mutable_apply()->add_bucket(3);
  status.mutable_apply()->add_bucket(1);
  status.mutable_apply()->set_sum_ns(4'000);
  status.add_last_contributor(5);
  status.add_last_contributor(6);
  TableStatus* const table = status.add_table();
  table->set_name("users");
  table->set_rows(7);
  MetricPage page;
  AddPsMetrics(status, &page);
  const std::string text = page.Text();
  EXPECT_THAT(text,
              HasSubstr("weir_ps_updates_total{result=\"accepted\"} 10\n"));
  EXPECT_THAT(text,
              HasSubstr("weir_ps_updates_total{result=\"duplicate\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("weir_ps_staleness_steps_bucket{le=\"1\"} 3\n"));
  EXPECT_THAT(text,
              HasSubstr("weir_ps_staleness_steps_bucket{le=\"+Inf\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("weir_ps_staleness_steps_sum 20\n"));
  EXPECT_THAT(text, HasSubstr("weir_ps_apply_seconds_count 4\n"));
  EXPECT_THAT(text,
              HasSubstr("weir_ps_last_contributor_total{slot=\"1\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("weir_ps_table_rows{table=\"users\"} 7\n"));
}

}  // namespace
}  // namespace weir
