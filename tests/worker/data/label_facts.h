// What the labels of a whole data set are, found by reading it.
#ifndef TESTS_WORKER_DATA_LABEL_FACTS_H_
#define TESTS_WORKER_DATA_LABEL_FACTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "worker/data/formats/dataset.h"

namespace weir {

struct LabelFacts {
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  // 1 + max when every label is a whole number >= 0, else 0.
  int64_t class_count = 0;
};

inline LabelFacts LabelFactsOf(const Dataset& dataset) {
  LabelFacts facts;
  bool classes = true;
  std::vector<float> features(dataset.feature_elements());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    float label = 0.0f;
    EXPECT_TRUE(dataset.ReadSample(i, features.data(), &label).ok());
    facts.min = std::min(facts.min, label);
    facts.max = std::max(facts.max, label);
    classes = classes && label >= 0.0f && label == std::floor(label);
  }
  facts.class_count = classes ? static_cast<int64_t>(facts.max) + 1 : 0;
  return facts;
}

}  // namespace weir

#endif  // TESTS_WORKER_DATA_LABEL_FACTS_H_
