"""Flags of libraries whose loops must vectorise (see common/math/simd.h)."""

# None of them changes a result: sqrtf need not set errno, and no code of ours
# unmasks floating-point traps.
KERNEL_COPTS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    # A loop that copies stays part of its loop: one pass, and nothing that the
    # thread sanitizer intercepts in place of WEIR_HOGWILD code.
    "-fno-builtin-memcpy",
    "-fno-builtin-memset",
]
