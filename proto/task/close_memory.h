// Keeps what a process holds in its memory from others.
#ifndef PROTO_TASK_CLOSE_MEMORY_H_
#define PROTO_TASK_CLOSE_MEMORY_H_

namespace weir {

// Keeps the secrets in this process's memory from a core dump's file and from
// the user's other processes. A program that it starts has to do so itself.
void CloseMemory();

}  // namespace weir

#endif  // PROTO_TASK_CLOSE_MEMORY_H_
