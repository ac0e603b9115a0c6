// The loader, and Weir's prototypes against NCCL's own header where it is:
//   g++ -std=c++20 -fsyntax-only -I. -I$NCCL_INCLUDE -I$CUDA_HOME/include
//     tests/worker/compute/cuda/nccl_api_test.cc
#include "worker/compute/cuda/nccl_api.h"

#include <type_traits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace weir::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status LoadError(const std::string& library) {
  return LoadNccl(library).status();
}

TEST(NcclApiTest, SaysWhyALibraryCannotBeOpened) {
  const absl::Status status = LoadError("libno_such_nccl.so.2");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("libno_such_nccl.so.2"));
}

TEST(NcclApiTest, RefusesALibraryThatLacksAFunction) {
  const absl::Status status = LoadError("libm.so.6");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libm.so.6"), HasSubstr("ncclGetVersion")));
}

std::string Stub(const std::string& name) {
  return "tests/worker/compute/cuda/" + name;
}

TEST(NcclApiTest, RefusesAnotherVersion) {
  for (const char* name : {"libstub_nccl28.so", "libstub_nccl3.so"}) {
    const absl::Status status = LoadError(Stub(name));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("not of 2.9 or newer"));
  }
}

TEST(NcclApiTest, WritesVersionsAsPeopleDo) {
  EXPECT_EQ(NcclVersionText(20908), "2.9.8");
  EXPECT_EQ(NcclVersionText(23203), "2.32.3");
}

// The stub's functions give the numbers of their lines.
TEST(NcclApiTest, FindsEveryFunctionByItsName) {
  const auto api = LoadNccl(Stub("libstub_nccl2.so"));
  ASSERT_TRUE(api.ok()) << api.status();
  int version = 0;
  EXPECT_EQ(api->get_version(&version), 0);
  EXPECT_EQ(version, 23203);
  EXPECT_EQ(std::string(api->get_error_string(0)), "text");
  int next = 0;
  const auto call = [](auto function) {
    // By the type that the stub's functions have.
    void* const address = reinterpret_cast<void*>(function);
    return reinterpret_cast<int (*)()>(address)();
  };
  for (const int number :
       {call(api->init_all), call(api->destroy), call(api->abort),
        call(api->group_start), call(api->group_end), call(api->reduce)}) {
    EXPECT_EQ(number, ++next);
  }
}

#ifdef NCCL_VERSION_CODE
// Enums are ints and pointers are pointers on both sides.
template <class T>
using Plain =
    std::conditional_t<std::is_enum_v<T>, int,
                       std::conditional_t<std::is_pointer_v<T>, void*, T>>;
template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Type = Plain<R>(Plain<A>...);
};
template <class A, class B>
constexpr bool kSame =
    std::is_same_v<typename Signature<A>::Type, typename Signature<B>::Type>;

#define WEIR_SAME(ours, theirs) \
  static_assert(kSame<decltype(NcclApi::ours), decltype(&theirs)>)
WEIR_SAME(get_version, ncclGetVersion);
WEIR_SAME(get_error_string, ncclGetErrorString);
WEIR_SAME(init_all, ncclCommInitAll);
WEIR_SAME(destroy, ncclCommDestroy);
WEIR_SAME(abort, ncclCommAbort);
WEIR_SAME(group_start, ncclGroupStart);
WEIR_SAME(group_end, ncclGroupEnd);
WEIR_SAME(reduce, ncclReduce);
#undef WEIR_SAME

static_assert(sizeof(ncclResult_t) == sizeof(int));
static_assert(sizeof(ncclDataType_t) == sizeof(int));
static_assert(sizeof(ncclRedOp_t) == sizeof(int));
static_assert(NCCL_MAJOR == kNcclMajor);
static_assert(NCCL_VERSION(2, 9, 0) == 20900);
static_assert(NCCL_VERSION(2, 8, 4) == 2804);
static_assert(ncclSuccess == kNcclSuccess);
static_assert(ncclFloat == kNcclFloat);
static_assert(ncclSum == kNcclSum);
#endif

}  // namespace
}  // namespace weir::cuda
