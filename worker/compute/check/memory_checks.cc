// Checks host memory, and that operations give the same bits wherever their
// memory lies and whatever ran before (I1 of worker/compute/backend.h).

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

  const std::vector<float> aside = {4, 5, 6};
  float* const beside = run->Output(3);
  backend->Wait(backend->Mark());
  backend->UploadAside(beside, aside.data(), 3);
  backend->JoinUploadsAside();
  y = run->Output(3);
  backend->Run(op::Add{3, beside, beside, y});
  run->Equal("of an upload aside", y, {8, 10, 12});

  // In two pieces, one of which ends inside a float.
  const auto bytes = std::as_bytes(std::span<const float>(aside));
  const std::span<const char> whole(reinterpret_cast<const char*>(bytes.data()),
                                    bytes.size());
  const std::span<const char> pieces[] = {whole.first(5), whole.subspan(5)};
  float* const now = run->Output(3);
  backend->Wait(backend->Mark());
  run->Expect("an upload is made at once",
              backend->UploadNow(now, pieces).ok());
  backend->NoteUploaded(now, 3);
  y = run->Output(3);
  backend->Run(op::Add{3, now, now, y});
  run->Equal("of an upload made at once", y, {8, 10, 12});

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
        x_(run->Draw(kConv.x_elements(), -1.0f, 1.0f)),
        dy_(run->Draw(kConv.y_elements(), -1.0f, 1.0f)),
        kernel_(run->Draw(kConv.kernel_elements(), -1.0f, 1.0f)),
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

  const float* In(const std::vector<float>& values) {
    run_->Shift(shift_);
    return run_->Exactly(values).device;
  }
  float* Out(int64_t count) {
    run_->Shift(shift_);
    return run_->Output(count);
  }
  // Runs the operation and compares everything that it writes. The first Run()
  // fills the list, the others go through it in its order.
  template <class Op>
  void Same(const Op& o) {
    run_->Run(o);
    for (const op::Written& written : o.outputs().all) {
      if (written.begin == nullptr) {
        continue;
      }
      if (next_ == first_.size()) {
        first_.push_back(run_->Read(written.begin, written.count));
      }
      run_->Equal(o.kName, written.begin, first_[next_++]);
    }
  }

  void Products() {
    Same(op::MatMul{kMat, In(a_), In(b_), nullptr, Out(kMat.m * kMat.n)});
    Same(op::SumRows{kRows, kConv.filters, In(dy_), Out(kConv.filters)});
  }

  void Convolutions() {
    const float* x = In(x_);
    const float* dy = In(dy_);
    const float* kernel = In(kernel_);
    Same(op::Conv2dForward{kConv, x, kernel, In(scale_),
                           Out(kConv.y_elements())});
    Same(op::Conv2dBackwardData{kConv, dy, kernel, Out(kConv.x_elements())});
    Same(op::Conv2dBackwardKernel{kConv, x, dy, Out(kConv.kernel_elements()),
                                  Out(kConv.filters)});
    // Windows overlap: a scatter could add in any order.
    const PoolShape pool{3, 16, 9, 9, 3, 1, 1};
    Same(op::PoolBackward{PoolKind::kMax, pool, x, x, Out(pool.x_elements())});
  }

  void Norms() {
    constexpr int64_t kWidth = kConv.filters;
    const float* x = In(dy_);
    const float* scale = In(scale_);
    for (const NormOver over : {NormOver::kRow, NormOver::kColumn}) {
      op::NormForward forward{over,    kRows,  kWidth, 1e-3f,
                              x,       scale,  scale,  Out(kRows * kWidth),
                              nullptr, nullptr};
      forward.mean = Out(forward.groups());
      forward.rstd = Out(forward.groups());
      if (over == NormOver::kColumn) {
        forward.variance = Out(kWidth);
      }
      Same(forward);
      Same(op::NormBackward{over, kRows, kWidth, x, scale, forward.mean,
                            forward.rstd, x, Out(kRows * kWidth), Out(kWidth),
                            Out(kWidth)});
    }
  }

  void Losses() {
    Same(op::Loss{LossKind::kSoftmaxCrossEntropy, kRows, kConv.filters, In(dy_),
                  In(labels_), Out(kRows), Out(kRows),
                  Out(kRows * kConv.filters)});
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
    Same(op::GatherSum{lists, kWidth, x, false, Out(2 * kWidth)});
    const VectorsShape shape{.batch = 3, .vectors = 81, .dim = kWidth};
    Same(op::PairForward{PairKind::kSum, shape, x, Out(3)});
    float* dots = Out(3 * shape.pairs());
    Same(op::PairForward{PairKind::kDots, shape, x, dots});
    Same(op::PairBackward{PairKind::kDots, shape, x, dots,
                          Out(shape.elements())});
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
