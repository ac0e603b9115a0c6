// A library with the names that cudnn_api_test looks for: each gives its place
// in the list.
#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): cuDNN's names.
extern "C" {

size_t cudnnGetVersion() { return STUB_VERSION; }
const char* cudnnGetErrorString(int) { return "text"; }

#define STUB(name, place) \
  int name() { return place; }
STUB(cudnnCreate, 1)
STUB(cudnnDestroy, 2)
STUB(cudnnSetStream, 3)
STUB(cudnnBackendCreateDescriptor, 4)
STUB(cudnnBackendDestroyDescriptor, 5)
STUB(cudnnBackendSetAttribute, 6)
STUB(cudnnBackendGetAttribute, 7)
STUB(cudnnBackendFinalize, 8)
STUB(cudnnBackendExecute, 9)
#undef STUB

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
