#include "worker/data/formats/criteo_dataset.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/label_facts.h"

namespace weir {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A line: label, 13 times `integer`, 26 times `category` and the line's number.
std::string Line(int number, const std::string& label = "",
                 const std::string& integer = "5") {
  std::string line = label.empty() ? std::to_string(number % 2) : label;
  for (int i = 0; i < 13; ++i) {
    line += "\t" + integer;
  }
  for (int c = 0; c < 26; ++c) {
    line += "\tv" + std::to_string(number);
  }
  return line + "\n";
}

std::string Lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += Line(i);
  }
  return text;
}

CriteoDataset::Options OptionsFor(const std::string& bytes) {
  CriteoDataset::Options options;
  options.path = WriteFile("day_0", bytes);
  options.threads = 1;
  options.field_path = "data.train.criteo";
  return options;
}

absl::StatusOr<std::unique_ptr<Dataset>> Read(const std::string& bytes) {
  return CriteoDataset::Create(OptionsFor(bytes));
}

// All that a data set holds: labels, integers and bags, in order.
struct Contents {
  std::vector<float> values;
  SparseBatch sparse;

  bool operator==(const Contents& other) const {
    bool same = values == other.values;
    for (size_t f = 0; f < sparse.features.size(); ++f) {
      same = same && sparse.features[f].ids == other.sparse.features[f].ids &&
             sparse.features[f].offsets == other.sparse.features[f].offsets;
    }
    return same;
  }
};

Contents ContentsOf(const Dataset& dataset) {
  Contents all;
  all.sparse.Clear(dataset.sparse_features().size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    std::vector<float> row(14);
    EXPECT_TRUE(dataset.ReadSample(i, row.data() + 1, row.data()).ok());
    EXPECT_TRUE(dataset.ReadSparse(i, &all.sparse).ok());
    all.values.insert(all.values.end(), row.begin(), row.end());
  }
  return all;
}

TEST(CriteoDatasetTest, ReadsLinesOfTheKaggleFile) {
  // Two lines of that form: 1 1 5 0 1382 4 15 2 181 1 2 (empty) 2 with 26
  // categories, and one whose fields are negative or empty.
  const std::string first =
      "0\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2\t68fd1e64\t80e26c9b\t"
      "fb936136\t7b4723c4\t25c83c98\t7e0ccccf\tde7995b8\t1f89b562\ta73ee510\t"
      "a8cd5504\tb2cb9c98\t37c9c164\t2824a5f6\t1adce6ef\t8ba8b39a\t891b62e7\t"
      "e5ba7672\tf54016b9\t21ddcdc9\tb1252a9d\t07b5194c\t\t3a171ecb\tc5c50484\t"
      "e8b83407\t9727dd16\n";
  std::string second = "1\t-3";
  for (int i = 0; i < 38; ++i) {
    second += "\t";
  }
  const auto data = Read(first + second);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->size(), 2);
  EXPECT_EQ((*data)->feature_shape(), std::vector<int64_t>{13});
  EXPECT_EQ((*data)->sparse_features().size(), 26u);
  EXPECT_EQ((*data)->sparse_features()[0], "C1");
  EXPECT_EQ((*data)->sparse_features()[25], "C26");
  EXPECT_EQ(LabelFactsOf(**data).class_count, 2);
  const Contents all = ContentsOf(**data);
  const int64_t integers[] = {1, 1, 5, 0, 1382, 4, 15, 2, 181, 1, 2, 0, 2};
  EXPECT_EQ(all.values[0], 0.0f);
  for (int i = 0; i < 13; ++i) {
    EXPECT_FLOAT_EQ(all.values[1 + i],
                    std::log(1.0f + static_cast<float>(integers[i])));
  }
  EXPECT_EQ(all.values[14], 1.0f);
  EXPECT_EQ(std::vector<float>(all.values.begin() + 15, all.values.end()),
            std::vector<float>(13));
  for (int c = 0; c < 26; ++c) {
    const SparseFeature& feature = all.sparse.features[c];
    const int64_t ids = c == 21 ? 0 : 1;
    EXPECT_EQ(feature.offsets, (std::vector<int64_t>{0, ids, ids})) << c;
  }
  // From an implementation in Python: see feature_hash_test.
  EXPECT_EQ(all.sparse.features[0].ids[0], 0x13aa494d0dbc2fu);
}

TEST(CriteoDatasetTest, EqualTextsOfTwoFeaturesAreTwoIds) {
  const auto data = Read(Line(7));
  ASSERT_TRUE(data.ok()) << data.status();
  const Contents all = ContentsOf(**data);
  for (int c = 1; c < 26; ++c) {
    EXPECT_NE(all.sparse.features[c].ids, all.sparse.features[0].ids);
  }
}

TEST(CriteoDatasetTest, BucketsBoundTheIds) {
  CriteoDataset::Options options = OptionsFor(Lines(50));
  const Contents whole = ContentsOf(**CriteoDataset::Create(options));
  options.hash_buckets = 11;
  const Contents bounded = ContentsOf(**CriteoDataset::Create(options));
  for (int c = 0; c < 26; ++c) {
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(bounded.sparse.features[c].ids[i],
                whole.sparse.features[c].ids[i] % 11);
    }
  }
}

TEST(CriteoDatasetTest, ThreadsAndPiecesChangeNothing) {
  const std::string text = Lines(300);
  const Contents expected = ContentsOf(**Read(text));
  ASSERT_EQ(expected.values.size(), 300u * 14);
  for (const int threads : {1, 2, 7}) {
    // Pieces of less than a line, of some lines and of the whole file.
    for (const int64_t piece_bytes : {1, 64, 1000, 1 << 20}) {
      CriteoDataset::Options options = OptionsFor(text);
      options.threads = threads;
      options.piece_bytes = piece_bytes;
      const auto data = CriteoDataset::Create(options);
      ASSERT_TRUE(data.ok()) << data.status();
      EXPECT_TRUE(ContentsOf(**data) == expected)
          << threads << " " << piece_bytes;
    }
  }
}

TEST(CriteoDatasetTest, PackedFilesAndOtherLineEndsAreTheSame) {
  const std::string text = Lines(40);
  const Contents expected = ContentsOf(**Read(text));
  std::string crlf = text;
  for (size_t at = 0; (at = crlf.find('\n', at)) != std::string::npos;
       at += 2) {
    crlf.replace(at, 1, "\r\n");
  }
  for (const std::string& bytes :
       {Gzip(text), Zstd(text), crlf, text.substr(0, text.size() - 1)}) {
    const auto data = Read(bytes);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_TRUE(ContentsOf(**data) == expected);
  }
}

TEST(CriteoDatasetTest, NamesTheFirstBadLineAndWhatIsWrong) {
  const std::string good = Lines(3);
  const struct {
    std::string line;
    std::string what;
  } cases[] = {
      {"1\t2\t3\n", "3 fields separated by tabs, not 40"},
      {Line(1).insert(0, "0\t"), "41 fields"},
      {"\n", "1 fields"},
      {Line(1, "2"), "the label '2' is not 0 or 1"},
      {Line(1, " "), "the label ' ' is not 0 or 1"},
      {Line(1, "1", "7.5"), "column 1: '7.5' is not an integer"},
      {Line(1, "1", "x"), "column 1: 'x' is not an integer"},
      {Line(1, "1", "99999999999999999999"), "is not an integer"},
  };
  for (const auto& c : cases) {
    ExpectError(Read(good + c.line + good).status(), kInvalid,
                {"data.train.criteo.path: ", "day_0:4: ", c.what});
  }
}

TEST(CriteoDatasetTest, BadLinesUpToTheBoundAreLeftOut) {
  const std::string text =
      "no line\n" + Lines(100) + "1\t2\n" + Lines(50) + Line(1, "x");
  const Contents expected = ContentsOf(**Read(Lines(100) + Lines(50)));
  for (const int threads : {1, 5}) {
    for (const int64_t piece_bytes : {64, 3000, 1 << 20}) {
      CriteoDataset::Options options = OptionsFor(text);
      options.threads = threads;
      options.piece_bytes = piece_bytes;
      options.max_bad_lines = 3;
      testing::internal::CaptureStderr();
      const auto data = CriteoDataset::Create(options);
      const std::string log = testing::internal::GetCapturedStderr();
      ASSERT_TRUE(data.ok()) << data.status();
      EXPECT_TRUE(ContentsOf(**data) == expected);
      EXPECT_NE(log.find("3 bad lines of " + options.path +
                         " were left out; the first: " + options.path +
                         ":1: 1 fields"),
                std::string::npos)
          << log;
      options.max_bad_lines = 2;
      ExpectError(CriteoDataset::Create(options).status(), kInvalid,
                  {"day_0:153: the label 'x'", "max_bad_lines: 2"});
      options.max_bad_lines = 1;
      ExpectError(CriteoDataset::Create(options).status(), kInvalid,
                  {"day_0:102: 2 fields", "max_bad_lines: 1"});
    }
  }
}

TEST(CriteoDatasetTest, ReadsNoFurtherThanMaxRows) {
  // A bad line behind the last row that is wanted does no harm.
  const std::string packed = Gzip("bad\n" + Lines(90) + "bad\n" + Lines(90));
  const Contents expected = ContentsOf(**Read(Lines(90)));
  for (const int threads : {1, 5}) {
    for (const int64_t piece_bytes : {64, 3000, 1 << 20}) {
      CriteoDataset::Options options =
          OptionsFor(packed.substr(0, packed.size() - 9));
      options.threads = threads;
      options.piece_bytes = piece_bytes;
      options.max_bad_lines = 1;
      options.max_rows = 90;
      // The file's error counts where it is in the piece of the last row.
      if (piece_bytes < (1 << 20)) {
        const auto data = CriteoDataset::Create(options);
        ASSERT_TRUE(data.ok()) << data.status();
        EXPECT_TRUE(ContentsOf(**data) == expected);
      }
      options.max_rows = 91;
      options.max_bad_lines = 2;
      options.path = WriteFile("day_1", packed);
      const auto more = CriteoDataset::Create(options);
      ASSERT_TRUE(more.ok()) << more.status();
      EXPECT_EQ((*more)->size(), 91);
      options.max_bad_lines = 1;
      ExpectError(CriteoDataset::Create(options).status(), kInvalid,
                  {"day_1:92: 1 fields"});
    }
  }
}

TEST(CriteoDatasetTest, NamesAFileThatIsCutDamagedOrEmpty) {
  const std::string packed = Zstd(Lines(200));
  CriteoDataset::Options options = OptionsFor(packed.substr(0, 200));
  for (const int threads : {1, 4}) {
    options.threads = threads;
    options.piece_bytes = 1000;
    ExpectError(CriteoDataset::Create(options).status(),
                absl::StatusCode::kDataLoss,
                {"data.train.criteo.path: ", options.path, "truncated"});
  }
  ExpectError(Read("").status(), kInvalid, {"day_0", "has no rows"});
  options.path = "/no/such";
  ExpectError(CriteoDataset::Create(options).status(),
              absl::StatusCode::kNotFound, {"/no/such"});
}

TEST(CriteoDatasetTest, ALineWithoutEndIsNotCollectedForEver) {
  CriteoDataset::Options options = OptionsFor(std::string(3 << 20, 'x'));
  options.piece_bytes = 4096;
  ExpectError(CriteoDataset::Create(options).status(), kInvalid,
              {"day_0", "longer than 1048576 bytes"});
}

}  // namespace
}  // namespace weir
