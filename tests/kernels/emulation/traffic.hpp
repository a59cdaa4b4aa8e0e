// Counts the different bytes of the arguments' memory that a launch reads and writes.
//
// The compiler calls a function before each access to memory if it instruments a program for finding races
// (`-fsanitize=thread`). These are such functions; the library that comes with the compiler is not linked. Without
// EMULATION_COUNTS and that option nothing is counted, and a launch runs at its full speed.

namespace emulation {

// What a launch has touched. The layout is that of `CountedTraffic` in `ffi_emulated.rs`.
struct Traffic { u64 read, written; };

// An allocation with a mark for each of its bytes.
struct Marked { const unsigned char *first, *end; unsigned char *marks; };
enum Mark : unsigned char { READ = 1, WRITTEN = 2 };

// Of the launch of this host thread. Plain memory: its accesses are not instrumented.
constexpr size_t MARKED_MAX = 32;
static thread_local Marked marked[MARKED_MAX];
static thread_local size_t marked_count = 0;

#ifdef EMULATION_COUNTS
#define NOT_COUNTED __attribute__((no_sanitize("thread"), noinline))

// Marks an access. A byte that the launch has written before it reads it does not come from memory.
NOT_COUNTED static void mark(const void *from, size_t bytes, Mark as) {
    const unsigned char *const address = (const unsigned char *)from;
    for (size_t at = 0; at < marked_count; at++) {
        const Marked &one = marked[at];
        if (address < one.first || one.end <= address)
            continue;
        for (size_t byte = address - one.first; byte < (size_t)(address - one.first) + bytes; byte++)
            if (as == WRITTEN || !(one.marks[byte] & WRITTEN))
                one.marks[byte] |= as;
        return;
    }
}
#else
static void mark(const void *, size_t, Mark) {}
#endif

// Starts to count for the allocations of the arguments.
static void start_count() {
    const std::lock_guard<std::mutex> guard(allocations_lock);
    size_t count = 0;
    for (const Allocation &one : allocations)
        for (const unsigned char *pointer : machine->pointers)
            if (one.contains(pointer) && count < MARKED_MAX) {
                marked[count++] = {one.data, one.data + one.bytes, (unsigned char *)calloc(one.bytes + 1, 1)};
                break;
            }
    marked_count = count;
}

// Ends it; adds what was counted.
static void end_count(Traffic &found) {
    const size_t count = marked_count;
    marked_count = 0;
    for (size_t at = 0; at < count; at++) {
        for (const unsigned char *byte = marked[at].first; byte < marked[at].end; byte++) {
            const unsigned char mark = marked[at].marks[byte - marked[at].first];
            found.read += (mark & READ) != 0;
            found.written += (mark & WRITTEN) != 0;
        }
        free(marked[at].marks);
    }
}

}  // namespace emulation

#ifdef EMULATION_COUNTS
// The names of the compiler.
#define ACCESSES(bytes)                                                                                             \
    NOT_COUNTED void __tsan_read##bytes(void *at) { emulation::mark(at, bytes, emulation::READ); }                   \
    NOT_COUNTED void __tsan_write##bytes(void *at) { emulation::mark(at, bytes, emulation::WRITTEN); }               \
    NOT_COUNTED void __tsan_unaligned_read##bytes(void *at) { emulation::mark(at, bytes, emulation::READ); }         \
    NOT_COUNTED void __tsan_unaligned_write##bytes(void *at) { emulation::mark(at, bytes, emulation::WRITTEN); }
extern "C" {
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
NOT_COUNTED void __tsan_read_range(void *at, size_t bytes) { emulation::mark(at, bytes, emulation::READ); }
NOT_COUNTED void __tsan_write_range(void *at, size_t bytes) { emulation::mark(at, bytes, emulation::WRITTEN); }
NOT_COUNTED void __tsan_init() {}
NOT_COUNTED void __tsan_func_entry(void *) {}
NOT_COUNTED void __tsan_func_exit() {}
NOT_COUNTED void __tsan_vptr_update(void **, void *) {}
NOT_COUNTED void __tsan_vptr_read(void **) {}
}
#endif
