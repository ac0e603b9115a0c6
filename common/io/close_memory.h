// Keeps what a process holds in its memory from others.
//
// Place: secured tasks call it, and whatever opens an object store.
#ifndef COMMON_IO_CLOSE_MEMORY_H_
#define COMMON_IO_CLOSE_MEMORY_H_

namespace weir {

// Keeps the secrets in this process's memory from a core dump's file and from
// the user's other processes. A program that it starts has to do so itself.
void CloseMemory();

}  // namespace weir

#endif  // COMMON_IO_CLOSE_MEMORY_H_
