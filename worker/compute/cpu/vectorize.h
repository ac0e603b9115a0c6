// WEIR_VECTORIZE compiles a loop for several instruction sets; the best one is
// chosen when the program starts.
//
// Elementwise arithmetic has the same bits in each version: contraction is off,
// and nothing is reordered. Builds with clang (for sanitizers) have the plain
// version only.
#ifndef WORKER_COMPUTE_CPU_VECTORIZE_H_
#define WORKER_COMPUTE_CPU_VECTORIZE_H_

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WEIR_VECTORIZE \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WEIR_VECTORIZE
#endif

#endif  // WORKER_COMPUTE_CPU_VECTORIZE_H_
