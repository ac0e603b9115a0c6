// A library with the names that nccl_api_test looks for: each gives its place
// in the list.

// NOLINTBEGIN(readability-identifier-naming): NCCL's names.
extern "C" {

int ncclGetVersion(int* version) {
  *version = STUB_VERSION;
  return 0;
}
const char* ncclGetErrorString(int) { return "text"; }

#define STUB(name, place) \
  int name() { return place; }
STUB(ncclCommInitAll, 1)
STUB(ncclCommDestroy, 2)
STUB(ncclCommAbort, 3)
STUB(ncclGroupStart, 4)
STUB(ncclGroupEnd, 5)
STUB(ncclReduce, 6)
#undef STUB

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
