// Checks host memory, and that operations give the same bits wherever their
// memory lies and whatever ran before (I1 of worker/compute/backend.h).
#include <cstring>

#include "absl/strings/str_cat.h"
#include "worker/compute/check/check_run.h"

namespace weir {
namespace {

void HostMemory(CheckRun* run) {
  Backend* backend = run->backend();
  run->Begin("3 floats");
  std::vector<float> host = {1, 2, 3};
  const absl::StatusOr<float*> mirror = backend->MirrorHost(host.data(), 3);
  if (!mirror.ok()) {
    run->Expect("there is a mirror", false);
    return;
  }
  backend->Upload(*mirror, host.data(), 3);
  float* y = run->Output(3);
  backend->Run(op::Add{3, *mirror, *mirror, y});
  run->Equal("of an uploaded mirror", y, {2, 4, 6});
  backend->Run(op::Add{3, y, *mirror, *mirror});
  backend->Download(host.data(), *mirror, 3);
  backend->Wait(backend->Mark());
  run->Expect("a downloaded mirror has the sum",
              host == std::vector<float>({3, 6, 9}));
  backend->Release(*mirror);

  float* stage = run->Output(3);
  // Output() has uploaded to it; Stage() requires that this has passed.
  backend->Wait(backend->Mark());
  const float* staged = backend->Stage(stage, host.data(), 3);
  y = run->Output(3);
  backend->Run(op::Add{3, staged, staged, y});
  std::vector<float> room(3);
  const float* fetched = backend->Fetch(room.data(), y, 3);
  const uint64_t mark = backend->Mark();
  backend->Wait(mark);
  run->Expect("what is staged and fetched is right",
              fetched[0] == 6.0f && fetched[1] == 12.0f && fetched[2] == 18.0f);
  run->Expect("a mark that was waited for is reached", backend->Reached(mark));
}

// Operations whose bits might depend on the address or on history, each on
// inputs drawn once.
class Repeated {
 public:
  explicit Repeated(CheckRun* run)
      : run_(run),
        a_(run->Draw(kMat.m * kMat.k, -1.0f, 1.0f)),
        b_(run->Draw(kMat.k * kMat.n, -1.0f, 1.0f)),
        x_(run->Draw(kRows * kConv.channels, -1.0f, 1.0f)),
        dy_(run->Draw(kRows * kConv.filters, -1.0f, 1.0f)),
        kernel_(run->Draw(kKernel, -1.0f, 1.0f)),
        scale_(run->Draw(kConv.filters, 0.5f, 1.5f)) {
    // Drawn once as well: all calls of Run() have the same inputs.
    for (int64_t r = 0; r < kRows; ++r) {
      labels_.push_back(
          static_cast<float>(run->random()->NextBelow(kConv.filters)));
    }
  }

  // Runs all, every buffer moved by 64 bytes `shift` times more than the one
  // before; the first call's bits are what all others' must be.
  void Run(int64_t shift) {
    shift_ = shift;
    next_ = 0;
    Products();
    Convolutions();
    Norms();
    Losses();
    Sparse();
  }

 private:
  static constexpr MatMulShape kMat{33, 65, 130, false, true};
  static constexpr Conv2dShape kConv{3, 16, 9, 9, 32, 3, 1, 1};
  static constexpr int64_t kRows = int64_t{3} * 9 * 9;
  static constexpr int64_t kKernel = int64_t{32} * 16 * 3 * 3;

  const float* In(const std::vector<float>& values) {
    run_->Shift(shift_);
    return run_->Exactly(values).device;
  }
  float* Out(int64_t count) {
    run_->Shift(shift_);
    return run_->Output(count);
  }
  void Same(const char* what, const float* device, int64_t count) {
    // The first Run() fills the list, the others go through it in its order.
    if (next_ == first_.size()) {
      first_.push_back(run_->Read(device, count));
    }
    run_->Equal(what, device, first_[next_++]);
  }

  void Products() {
    float* c = Out(kMat.m * kMat.n);
    run_->Run(op::MatMul{kMat, In(a_), In(b_), nullptr, c});
    Same("matmul", c, kMat.m * kMat.n);
    float* sums = Out(kConv.filters);
    run_->Run(op::SumRows{kRows, kConv.filters, In(dy_), sums});
    Same("sum rows", sums, kConv.filters);
  }

  void Convolutions() {
    const float* x = In(x_);
    const float* dy = In(dy_);
    const float* kernel = In(kernel_);
    float* y = Out(kRows * kConv.filters);
    run_->Run(op::Conv2dForward{kConv, x, kernel, In(scale_), y});
    Same("conv2d", y, kRows * kConv.filters);
    float* dx = Out(kRows * kConv.channels);
    run_->Run(op::Conv2dBackwardData{kConv, dy, kernel, dx});
    Same("conv2d dx", dx, kRows * kConv.channels);
    float* dkernel = Out(kKernel);
    float* dbias = Out(kConv.filters);
    run_->Run(op::Conv2dBackwardKernel{kConv, x, dy, dkernel, dbias});
    Same("conv2d dkernel", dkernel, kKernel);
    Same("conv2d dbias", dbias, kConv.filters);
    // Windows overlap: a scatter could add in any order.
    const PoolShape pool{3, 16, 9, 9, 3, 1, 1};
    dx = Out(kRows * kConv.channels);
    run_->Run(op::PoolBackward{PoolKind::kMax, pool, x, x, dx});
    Same("max pool dx", dx, kRows * kConv.channels);
  }

  void Norms() {
    constexpr int64_t kWidth = kConv.filters;
    const float* x = In(dy_);
    const float* scale = In(scale_);
    for (const bool layer : {true, false}) {
      int64_t groups = kWidth;
      std::string norm = "batch norm";
      if (layer) {
        groups = kRows;
        norm = "layer norm";
      }
      float* y = Out(kRows * kWidth);
      float* mean = Out(groups);
      float* rstd = Out(groups);
      float* dx = Out(kRows * kWidth);
      float* dscale = Out(kWidth);
      float* doffset = Out(kWidth);
      Backend* backend = run_->backend();
      if (layer) {
        backend->Run(op::NormForward{NormOver::kRow, kRows, kWidth, 1e-3f, x,
                                     scale, scale, y, mean, rstd});
        backend->Run(op::NormBackward{NormOver::kRow, kRows, kWidth, x, scale,
                                      mean, rstd, x, dx, dscale, doffset});
      } else {
        backend->Run(op::NormForward{NormOver::kColumn, kRows, kWidth, 1e-3f, x,
                                     scale, scale, y, mean, rstd, Out(kWidth)});
        backend->Run(op::NormBackward{NormOver::kColumn, kRows, kWidth, x,
                                      scale, mean, rstd, x, dx, dscale,
                                      doffset});
      }
      Same(norm.c_str(), y, kRows * kWidth);
      Same((norm + " dx").c_str(), dx, kRows * kWidth);
      Same((norm + " dscale").c_str(), dscale, kWidth);
      Same((norm + " doffset").c_str(), doffset, kWidth);
    }
  }

  void Losses() {
    float* loss = Out(kRows);
    float* dx = Out(kRows * kConv.filters);
    run_->Run(op::Loss{LossKind::kSoftmaxCrossEntropy, kRows, kConv.filters,
                       In(dy_), In(labels_), loss, Out(kRows), dx});
    Same("softmax loss", loss, kRows);
    Same("softmax dx", dx, kRows * kConv.filters);
  }

  // The first list has all rows of dy twice: a device cuts so long a list into
  // parts. The second one is empty.
  void Sparse() {
    constexpr int64_t kWidth = kConv.filters;
    std::vector<int32_t> index(2 * kRows);
    for (int64_t i = 0; i < 2 * kRows; ++i) {
      index[i] = static_cast<int32_t>(i % kRows);
    }
    const std::vector<int32_t> offsets = {0, 2 * kRows, 2 * kRows};
    const RowLists lists{
        .count = 2,
        .offsets = reinterpret_cast<const int32_t*>(In(AsFloats(offsets))),
        .index = reinterpret_cast<const int32_t*>(In(AsFloats(index)))};
    const float* x = In(dy_);
    float* y = Out(2 * kWidth);
    run_->Run(op::GatherSum{lists, kWidth, x, false, y});
    Same("gather sum", y, 2 * kWidth);
    const VectorsShape shape{.batch = 3, .vectors = 81, .dim = kWidth};
    y = Out(3);
    run_->Run(op::PairForward{PairKind::kSum, shape, x, y});
    Same("pair sum", y, 3);
    y = Out(3 * shape.pairs());
    run_->Run(op::PairForward{PairKind::kDots, shape, x, y});
    Same("pair dots", y, 3 * shape.pairs());
    float* dx = Out(kRows * kWidth);
    run_->Run(op::PairBackward{PairKind::kDots, shape, x, y, dx});
    Same("pair dots dx", dx, kRows * kWidth);
  }

  CheckRun* const run_;
  const std::vector<float> a_, b_, x_, dy_, kernel_, scale_;
  std::vector<float> labels_;
  int64_t shift_ = 0;
  size_t next_ = 0;
  std::vector<std::vector<float>> first_;  // in the order of Same()
};

void SameBitsAnywhere(CheckRun* run) {
  Repeated repeated(run);
  for (int64_t shift = 0; shift < 5; ++shift) {
    run->Begin(absl::StrCat("buffers ", shift, " x 64 bytes apart"));
    repeated.Run(shift);
  }
}

// Runs other sizes of the same operations, which change what caches and
// workspaces hold.
void OtherWork(CheckRun* run) {
  Backend* backend = run->backend();
  for (const int64_t n : {int64_t{7}, int64_t{200}}) {
    const float* a = run->Random(n * n).device;
    float* c = run->Output(n * n);
    backend->Run(op::MatMul{{n, n, n}, a, a, nullptr, c});
    backend->Run(op::SumRows{n, n, a, run->Output(n)});
    const Conv2dShape conv{1, n, 5, 5, 7, 3, 1, 1};
    backend->Run(op::Conv2dBackwardKernel{
        conv, run->Random(25 * n).device, run->Random(int64_t{25} * 7).device,
        run->Output(7 * n * 9), run->Output(7)});
    backend->Run(op::Add{n * n, c, c, c});
  }
}

void SameBitsTwice(CheckRun* run) {
  Repeated repeated(run);
  for (int64_t round = 0; round < 3; ++round) {
    run->Begin(absl::StrCat("round ", round));
    repeated.Run(0);
    OtherWork(run);
  }
}

}  // namespace

std::vector<OperationCheck> MemoryChecks() {
  return {{"mirror, stage, fetch", &HostMemory},
          {"same bits wherever buffers lie", &SameBitsAnywhere},
          {"same bits twice", &SameBitsTwice}};
}

}  // namespace weir
