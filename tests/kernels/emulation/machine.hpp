// An emulated device: the threads of a block are fibers of one host thread. A collective of a warp, and a barrier
// of the block, wait until all of their threads have come. Blocks run one after the other.
//
// What a device may do in any order, the emulation does in the order of a schedule, and a kernel must give the same
// bits under all of them. Under `late`, asynchronous copies land at the wait that needs them, and threads take
// turns: that finds data that is used before it is there. Under `early`, copies land at once, and a warp runs as
// far as it can before another one runs: that finds data that is overwritten while another warp still needs it.
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>
// Fibers of x86-64 are a few instructions; those of other processors are contexts of the C library.
#if !defined(__x86_64__) && !defined(EMULATION_WITH_UCONTEXT)
#define EMULATION_WITH_UCONTEXT
#endif
#ifdef EMULATION_WITH_UCONTEXT
#include <ucontext.h>
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

namespace emulation {

constexpr int WARP_LANES = 32;
constexpr size_t PAGE = 4096, SHARED_BYTES_MAX = 228 << 10, SHARED_ALIGNMENT = 1024;
// Below each stack is memory without access, as large as the stack, so that a large frame does not step over it.
constexpr size_t STACK_BYTES = 64 << 10, STACK_GUARD_BYTES = STACK_BYTES;

struct Dim { unsigned x, y, z; };

enum class Schedule { Late = 0, Early = 1 };

// A mistake that a test puts into a kernel: the statement of a line does something else.
enum class Mistake {
    None = 0,
    NoBarrier = 1,    // SYNC returns at once
    ShortWait = 2,    // wait_copies leaves one more group under way
    NoSeal = 3,       // seal_copies does nothing
    WrongCopy = 4,    // copy16 writes the neighbouring 16 bytes
    WrongLoad = 5,    // load_matrices and load_transposed read the neighbouring 16 bytes
    NoShuffle = 6,    // shuffle_xor returns the lane's own value
};

// A copy of 16 bytes to shared memory that has not landed.
struct Copy { u32 to; const void *from; u32 bytes; int group; };

enum class Wait { Nothing, Warp, Block, End };

struct Warp {
    int arrived = 0;
    const char *operation = nullptr;   // of the lane that came first
    int line = 0;
    alignas(16) unsigned char brought[WARP_LANES][64];
    alignas(16) unsigned char taken[WARP_LANES][64];
};

struct Fiber {
    unsigned number = 0;
    Dim index = {0, 0, 0};
    Warp *warp = nullptr;
    int lane = 0;
    Wait wait = Wait::Nothing;
    const char *operation = "";   // and line: where it waits
    int line = 0;
    std::vector<Copy> copies;
    int sealed = 0;   // groups
#ifndef EMULATION_WITH_UCONTEXT
    void *stack_pointer = nullptr;
#else
    ucontext_t context;
#endif
};

typedef void (*Entry)(void **arguments);

// Memory of a block: stacks of its threads, each above memory without access, and shared memory, which ends at such
// memory. Launches use it one after the other, because mapping it takes longer than most of them.
struct Workspace {
    size_t threads = 0;   // with a stack
    unsigned char *stacks = nullptr, *shared_pages = nullptr;

    unsigned char *shared_end() const { return shared_pages + PAGE + SHARED_BYTES_MAX; }
    // Has memory for this number of threads; returns false if there is none.
    bool reserve(size_t count) {
        if (count <= threads && shared_pages)
            return true;
        unmap();
        const int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *of_stacks = mmap(nullptr, count * (STACK_BYTES + STACK_GUARD_BYTES), access, flags, -1, 0);
        void *shared = mmap(nullptr, SHARED_BYTES_MAX + 2 * PAGE, access, flags, -1, 0);
        if (of_stacks != MAP_FAILED)
            stacks = (unsigned char *)of_stacks, threads = count;
        if (shared != MAP_FAILED)
            shared_pages = (unsigned char *)shared;
        if (!stacks || !shared_pages)
            return false;
        for (size_t thread = 0; thread < count; thread++)
            mprotect(stacks + thread * (STACK_BYTES + STACK_GUARD_BYTES), STACK_GUARD_BYTES, PROT_NONE);
        mprotect(shared_pages, PAGE, PROT_NONE);
        mprotect(shared_end(), PAGE, PROT_NONE);
        return true;
    }
    ~Workspace() { unmap(); }

private:
    void unmap() {
        if (stacks)
            munmap(stacks, threads * (STACK_BYTES + STACK_GUARD_BYTES));
        if (shared_pages)
            munmap(shared_pages, SHARED_BYTES_MAX + 2 * PAGE);
        stacks = shared_pages = nullptr;
        threads = 0;
    }
};

// One launch.
struct Machine {
    const char *kernel;
    Entry entry;
    void **arguments;
    std::vector<const unsigned char *> pointers;   // among the arguments
    Dim grid, block, block_index = {0, 0, 0};
    Schedule schedule;
    u64 random;
    Mistake mistake;
    int mistake_line;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    unsigned alive = 0, at_barrier = 0;
    int barrier_line = 0;
    Fiber *now = nullptr;
    std::unique_ptr<Workspace> workspace;
    unsigned char *shared = nullptr;
    size_t shared_bytes, shared_slack = 0;
    char *message;
    size_t message_bytes;
    sigjmp_buf home;
#ifndef EMULATION_WITH_UCONTEXT
    void *home_pointer = nullptr;
#else
    ucontext_t home_context;
#endif
};

// Workspaces that no launch uses. There are at most as many as host threads that launch at the same time.
static std::mutex idle_lock;
static std::vector<std::unique_ptr<Workspace>> idle;

static std::unique_ptr<Workspace> take_workspace() {
    const std::lock_guard<std::mutex> guard(idle_lock);
    if (idle.empty())
        return std::unique_ptr<Workspace>(new Workspace);
    std::unique_ptr<Workspace> taken = std::move(idle.back());
    idle.pop_back();
    return taken;
}

static void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard<std::mutex> guard(idle_lock);
    idle.push_back(std::move(workspace));
}

// Each host thread has its own launch; this model of thread-local storage needs no function call.
static thread_local Machine *machine __attribute__((tls_model("initial-exec"))) = nullptr;

// Ends the launch with an error that names kernel, block and thread.
[[noreturn]] __attribute__((format(printf, 1, 2))) static void fail(const char *format, ...) {
    Machine &m = *machine;
    const Dim &b = m.block_index;
    int used = snprintf(m.message, m.message_bytes, "kernel `%s`, block (%u, %u, %u)", m.kernel, b.x, b.y, b.z);
    if (m.now)
        used += snprintf(m.message + used, m.message_bytes - used, ", thread %u", m.now->number);
    used += snprintf(m.message + used, m.message_bytes - used, ": ");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(m.message + used, m.message_bytes - used, format, arguments);
    va_end(arguments);
    m.now = nullptr;
    siglongjmp(m.home, 1);
}

static u64 random_below(u64 bound) {
    u64 &state = machine->random;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % bound;
}

static bool has_mistake(Mistake mistake, int line) {
    return machine->mistake == mistake && machine->mistake_line == line;
}

// --- Fibers ---

#ifndef EMULATION_WITH_UCONTEXT
extern "C" __attribute__((visibility("hidden"))) void emulation_switch(void **from, void *to);
asm(R"(
.text
.hidden emulation_switch
.globl emulation_switch
.type emulation_switch, @function
emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
static void leave() { emulation_switch(&machine->now->stack_pointer, machine->home_pointer); }
static void enter(Fiber &fiber) { emulation_switch(&machine->home_pointer, fiber.stack_pointer); }
#else
static void leave() { swapcontext(&machine->now->context, &machine->home_context); }
static void enter(Fiber &fiber) { swapcontext(&machine->home_context, &fiber.context); }
#endif

static void run_thread() {
    machine->entry(machine->arguments);
    machine->now->wait = Wait::End;
    machine->alive--;
    leave();
    abort();   // An ended fiber is never entered.
}

// Makes a fiber start `run_thread` when it is entered.
static void prepare_fiber(Fiber &fiber, unsigned char *stack) {
#ifndef EMULATION_WITH_UCONTEXT
    void **top = (void **)(stack + STACK_BYTES - 64);
    *--top = nullptr;
    *--top = (void *)run_thread;
    for (int saved = 0; saved < 6; saved++)
        *--top = nullptr;
    fiber.stack_pointer = top;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = STACK_BYTES;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_thread, 0);
#endif
}

static void run(Fiber &fiber) {
    machine->now = &fiber;
    enter(fiber);
    machine->now = nullptr;
}

static void wait_here(Wait wait, const char *operation, int line) {
    Fiber &fiber = *machine->now;
    fiber.wait = wait;
    fiber.operation = operation;
    fiber.line = line;
    leave();
}

// --- Collectives ---

// Barrier of the block.
static void barrier(int line) {
    Machine &m = *machine;
    if (has_mistake(Mistake::NoBarrier, line))
        return;
    if (m.at_barrier != 0 && m.barrier_line != line)
        fail("is at the barrier of line %d, other threads are at that of line %d", line, m.barrier_line);
    m.barrier_line = line;
    if (++m.at_barrier < m.fibers.size())
        return wait_here(Wait::Block, "barrier", line);
    m.at_barrier = 0;
    for (Fiber &fiber : m.fibers)
        fiber.wait = Wait::Nothing;
}

// Collective of a warp: each lane brings `value`; the last one computes what all take.
template <class Taken, class Brought, class Compute>
static Taken together(const char *operation, int line, const Brought &value, Compute compute) {
    static_assert(sizeof(Brought) <= sizeof(Warp::brought[0]) && sizeof(Taken) <= sizeof(Warp::taken[0]));
    Machine &m = *machine;
    Fiber &fiber = *m.now;
    Warp &warp = *fiber.warp;
    if (warp.arrived != 0 && (warp.operation != operation || warp.line != line))
        fail("is at `%s` of line %d, another lane of its warp at `%s` of line %d", operation, line, warp.operation,
             warp.line);
    warp.operation = operation;
    warp.line = line;
    memcpy(warp.brought[fiber.lane], &value, sizeof value);
    if (++warp.arrived < WARP_LANES) {
        wait_here(Wait::Warp, operation, line);
    } else {
        compute(warp);
        warp.arrived = 0;
        const size_t first = fiber.number / WARP_LANES * WARP_LANES;
        for (int lane = 0; lane < WARP_LANES; lane++)
            m.fibers[first + lane].wait = Wait::Nothing;
    }
    Taken taken;
    memcpy(&taken, warp.taken[fiber.lane], sizeof taken);
    return taken;
}

// --- Schedules ---

// Names a thread that waits for threads that never come.
[[noreturn]] static void fail_deadlocked() {
    Machine &m = *machine;
    unsigned waiting = 0;
    for (Fiber &fiber : m.fibers)
        waiting += fiber.wait == Wait::Block || fiber.wait == Wait::Warp;
    for (Fiber &fiber : m.fibers) {
        if (fiber.wait != Wait::Block && fiber.wait != Wait::Warp)
            continue;
        m.now = &fiber;
        fail("deadlock at `%s` of line %d: %u threads wait, %u of %u have exited", fiber.operation, fiber.line, waiting,
             (unsigned)m.fibers.size() - m.alive, (unsigned)m.fibers.size());
    }
    fail("deadlock");
}

// Threads take turns until all have exited: seed 0 in their order, 1 in reverse order, others from a random one on.
static void run_late(u64 seed) {
    Machine &m = *machine;
    const size_t count = m.fibers.size();
    while (m.alive != 0) {
        bool has_run = false;
        const size_t start = seed < 2 ? 0 : random_below(count);
        const bool is_reversed = seed == 1 || (1 < seed && random_below(2));
        for (size_t turn = 0; turn < count; turn++) {
            const size_t at = (start + turn) % count;
            Fiber &fiber = m.fibers[is_reversed ? count - 1 - at : at];
            if (fiber.wait != Wait::Nothing)
                continue;
            run(fiber);
            has_run = true;
        }
        if (!has_run)
            fail_deadlocked();
    }
}

// Runs a warp until all of its threads wait for other warps or have exited; returns whether one of them ran.
static bool run_warp(size_t warp) {
    Machine &m = *machine;
    const size_t first = warp * WARP_LANES, end = std::min(first + WARP_LANES, m.fibers.size());
    bool has_run = false;
    for (bool runs = true; runs;) {
        runs = false;
        for (size_t at = first; at < end; at++) {
            if (m.fibers[at].wait != Wait::Nothing)
                continue;
            run(m.fibers[at]);
            runs = has_run = true;
        }
    }
    return has_run;
}

// A warp runs as far as it can before another one, which is chosen at random.
static void run_early() {
    Machine &m = *machine;
    const size_t count = m.warps.size();
    while (m.alive != 0) {
        const size_t start = random_below(count);
        bool has_run = false;
        for (size_t turn = 0; turn < count && !has_run; turn++)
            has_run = run_warp((start + turn) % count);
        if (!has_run)
            fail_deadlocked();
    }
}

// --- Blocks ---

static void prepare_block(Dim index) {
    Machine &m = *machine;
    m.block_index = index;
    // NaN: a number that was not written shows.
    memset(m.shared, 0xff, m.shared_bytes + m.shared_slack);
    m.alive = (unsigned)m.fibers.size();
    m.at_barrier = 0;
    for (Warp &warp : m.warps)
        warp.arrived = 0;
    for (unsigned number = 0; number < m.fibers.size(); number++) {
        Fiber &fiber = m.fibers[number];
        fiber.number = number;
        fiber.index = {number % m.block.x, number / m.block.x % m.block.y, number / m.block.x / m.block.y};
        fiber.warp = &m.warps[number / WARP_LANES];
        fiber.lane = number % WARP_LANES;
        fiber.wait = Wait::Nothing;
        fiber.copies.clear();
        fiber.sealed = 0;
        prepare_fiber(fiber, m.workspace->stacks + number * (STACK_BYTES + STACK_GUARD_BYTES) + STACK_GUARD_BYTES);
    }
}

static void run_block(Dim index, u64 seed) {
    Machine &m = *machine;
    prepare_block(index);
    if (m.schedule == Schedule::Late)
        run_late(seed);
    else
        run_early();
    for (size_t at = 0; at < m.shared_slack; at++)
        if (m.shared[m.shared_bytes + at] != 0xff)
            fail("wrote byte %zu of %zu bytes of shared memory", m.shared_bytes + at, m.shared_bytes);
    for (Fiber &fiber : m.fibers)
        if (!fiber.copies.empty()) {
            m.now = &fiber;
            fail("exited without waiting for %zu asynchronous copies", fiber.copies.size());
        }
}

// Reserves memory for all threads of a block, and shared memory at its end.
static bool reserve_memory() {
    Machine &m = *machine;
    if (!m.workspace->reserve(m.fibers.size()))
        return false;
    m.shared_slack = -m.shared_bytes % SHARED_ALIGNMENT;
    m.shared = m.workspace->shared_end() - m.shared_slack - m.shared_bytes;
    return true;
}

}  // namespace emulation
