"""Finds a source that uses a system header which nothing includes for it.

The compilers would not: they read the headers of third_party/precompiled before
each source. A header may come with one of Weir's own that the source includes.
"""

import re

from checks.tree import SOURCE, includes, lines_of

LIST = "third_party/precompiled/headers.txt"

# What the headers of LIST are for, as patterns: of the names after "std::",
STANDARD = {
    "algorithm": "(stable_|partial_)?sort|m(in|ax)(_element)?|minmax|clamp"
    "|find(_if(_not)?|_end|_first_of)?|copy(_n|_if|_backward)?|fill(_n)?"
    "|count(_if)?|(any|all|none)_of|transform|replace(_if)?|remove(_if)?"
    "|unique(_copy)?|reverse|rotate|shuffle|equal(_range)?|mismatch|search"
    "|(lower|upper)_bound|binary_search|includes|nth_element|generate(_n)?"
    "|for_each|merge|set_(union|intersection|difference)|adjacent_find"
    "|(stable_)?partition|(is|push|pop|make)_heap|is_sorted|next_permutation"
    "|lexicographical_compare",
    "array": "array",
    "atomic": r"atomic\w*|memory_order\w*",
    "bit": "bit_(cast|ceil|floor|width)|has_single_bit|popcount|endian"
    "|count[lr]_(zero|one)|rot[lr]",
    "charconv": "(from|to)_chars|chars_format",
    "chrono": "chrono",
    "cmath": "sqrt|is(finite|nan|inf)|pow|exp[2m]?1?|log(2|10|1p)?|fabs|floor"
    "|ceil|l?l?round|trunc|tanh|erf|fm(in|ax|od)|hypot|copysign|signbit"
    "|nextafter|ldexp|frexp|cos|sin",
    "condition_variable": r"condition_variable\w*|cv_status",
    "cstdlib": "getenv|abort|_Exit|strto[a-z]+|system",
    "cstring": "mem(cpy|set|cmp|move|chr)|str(len|error|n?cmp|chr|rchr|str)",
    "deque": "deque",
    "filesystem": "filesystem",
    "fstream": "[io]?fstream",
    "functional": "function|reference_wrapper|greater|bind|plus|minus",
    "limits": "numeric_limits",
    "map": "(multi)?map",
    "memory": r"(unique|shared|weak)_ptr|make_(unique|shared)\w*"
    "|enable_shared_from_this|addressof|destroy_at|construct_at",
    "mutex": r"(recursive_|timed_)?mutex|lock_guard|scoped_lock|unique_lock"
    "|once_flag|call_once",
    "numeric": "accumulate|iota|gcd|lcm|partial_sum|inner_product|reduce",
    "optional": "optional|nullopt|make_optional",
    "random": r"mt19937\w*|random_device|\w+_distribution|minstd_rand0?",
    "set": "(multi)?set",
    "span": "span|as_(writable_)?bytes",
    "sstream": "[io]?stringstream",
    "string": "string|to_string|sto(i|l|ll|ul|ull|f|d)|getline",
    "string_view": "string_view",
    "thread": "thread|jthread|this_thread",
    "tuple": "tuple|tie|make_tuple|forward_as_tuple|apply|ignore",
    "utility": "move|pair|make_pair|swap|exchange|forward|as_const|in_place"
    "|index_sequence|declval|unreachable",
    "variant": "variant|visit|get_if|holds_alternative|monostate",
    "vector": "vector",
}

# after "absl::",
ABSEIL = {
    "container/flat_hash_map": "flat_hash_map",
    "status/status": r"(Status|StatusCode|OkStatus|\w+Error|Is[A-Z]\w+)",
    "status/statusor": "StatusOr",
    "strings/ascii": r"ascii_\w+|AsciiStrTo\w+|Strip\w*AsciiWhitespace",
    "strings/escaping": r"\w+Escape|\w+Unescape\w*|BytesToHexString"
    "|HexStringToBytes",
    "strings/match": "StartsWith|EndsWith|StrContains|EqualsIgnoreCase",
    "strings/numbers": r"SimpleAto\w+|SimpleHexAtoi",
    "strings/str_cat": "StrCat|StrAppend|Hex|Dec",
    "strings/str_format": r"StrFormat|StrAppendFormat|F?PrintF|FormatSpec",
    "strings/str_join": "StrJoin|PairFormatter",
    "strings/str_replace": "StrReplaceAll",
    "strings/str_split": "StrSplit|Skip(Empty|Whitespace)|MaxSplits|ByAnyChar",
    "strings/string_view": "string_view",
    "strings/strip": "(Consume|Strip)(Prefix|Suffix)",
}

# and of all of the name.
OTHERS = {
    "cstdint": r"\bu?int(8|16|32|64|ptr)_t\b",
    "fcntl.h": r"\bO_(RDONLY|WRONLY|RDWR|CREAT)\b|(?<!\w)::open\(",
    "google/protobuf/message.h": r"\bgoogle::protobuf::Message\b",
    "google/protobuf/text_format.h": r"\bTextFormat\b",
    "signal.h": r"\bSIG(TERM|INT|KILL|STOP|CONT)\b|(?<!\w)::kill\(",
    "sys/mman.h": r"\bPROT_READ\b|(?<!\w)::(mmap|munmap)\(",
    "sys/socket.h": r"\bSOCK_STREAM\b|(?<!\w)::socket\(",
    "sys/stat.h": r"\bS_IS(REG|DIR)\b|(?<!\w)::(stat|fstat|mkdir)\(",
    "unistd.h": r"(?<!\w)::(close|read|write|unlink|getpid|dup2?)\(",
}

# Only generated sources name what these have.
GENERATED = (
    "google/protobuf/descriptor.pb.h",
    "google/protobuf/extension_set.h",
    "google/protobuf/generated_enum_reflection.h",
    "google/protobuf/map.h",
    "google/protobuf/repeated_field.h",
)

# The standard says, or the header does, that it brings another one's names.
BRINGS = {
    "absl/status/statusor.h": ["absl/status/status.h"],
    "csignal": ["signal.h"],
    "map": ["utility"],
    "span": ["array"],
}


def _qualified():
    for header, names in STANDARD.items():
        yield header, re.compile(f"std::({names})")
    for header, names in ABSEIL.items():
        yield f"absl/{header}.h", re.compile(f"absl::({names})")


QUALIFIED = dict(_qualified())
BARE = {header: re.compile(names) for header, names in OTHERS.items()}
NAME = re.compile(r"\b(?:std|absl)::\w+")


def _reached(tree, path, found):
    """Adds the system headers that `path` includes, itself or by Weir's own."""
    if path in found:
        return found[path]
    reached = found[path] = set()
    for _, name in includes(tree.texts.get(path, "")):
        header = name.strip('"<>')
        reached |= {header, *BRINGS.get(header, ())}
        if header.endswith(".pb.h"):
            reached.add("google/protobuf/message.h")
        reached |= _reached(tree, header, found)
    return reached


def _used(code):
    """(header, name, offset) of what `code` uses, once for each header."""
    names = {}
    for match in NAME.finditer(code):
        names.setdefault(match[0], match.start())
    for header, pattern in QUALIFIED.items():
        name = next(filter(pattern.fullmatch, names), None)
        if name:
            yield header, name, names[name]
    for header, pattern in BARE.items():
        match = pattern.search(code)
        if match:
            yield header, match[0], match.start()


def check_system_includes(tree):
    known = ("", *QUALIFIED, *BARE, *GENERATED)
    for number, line in lines_of(tree.read(LIST)):
        if not line.startswith("#") and line not in known:
            yield f"{LIST}:{number}: say in {__name__} what <{line}> is for"
    found = {}
    for path, _ in tree.sources(*SOURCE):
        reached, code = _reached(tree, path, found), tree.scan(path).code
        for header, name, offset in _used(code):
            if header not in reached:
                line = code.count("\n", 0, offset) + 1
                yield f"{path}:{line}: {name} needs <{header}>"
