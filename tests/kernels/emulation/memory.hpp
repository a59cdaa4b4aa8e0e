// Memory of the emulated device. Before and after an allocation are addresses without access, so that a kernel that
// leaves it stops with an error. Bytes between them and the allocation, less than a page, have a pattern, which is
// checked after a launch.

namespace emulation {

// Addresses without access on each side.
constexpr size_t GUARD_BYTES = 1 << 20;

struct Allocation {
    unsigned char *pages, *data;
    size_t page_bytes, bytes;   // page_bytes: without the guards

    unsigned char *first() const { return pages + GUARD_BYTES; }
    unsigned char *end() const { return first() + page_bytes; }
    bool contains(const unsigned char *address) const { return data <= address && address < end(); }
};

constexpr unsigned char PATTERN = 0xff;   // NaN, as 16 or 32 bits
constexpr size_t ALIGNMENT = 16;

static std::mutex allocations_lock;
static std::vector<Allocation> allocations;

static void *allocate(size_t bytes) {
    const size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t page_bytes = (rounded + PAGE - 1) / PAGE * PAGE;
    void *pages = mmap(nullptr, page_bytes + 2 * GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return nullptr;
    Allocation made = {(unsigned char *)pages, nullptr, page_bytes, bytes};
    mprotect(made.first(), page_bytes, PROT_READ | PROT_WRITE);
    memset(made.first(), PATTERN, page_bytes);
    made.data = made.end() - rounded;
    const std::lock_guard<std::mutex> guard(allocations_lock);
    allocations.push_back(made);
    return made.data;
}

static bool release(void *data) {
    const std::lock_guard<std::mutex> guard(allocations_lock);
    for (size_t at = 0; at < allocations.size(); at++) {
        const Allocation found = allocations[at];
        if (found.data != data)
            continue;
        munmap(found.pages, found.page_bytes + 2 * GUARD_BYTES);
        allocations.erase(allocations.begin() + at);
        return true;
    }
    return false;
}

// Ends the launch with an error if the kernel has written beside an allocation of its arguments.
static void check_allocations() {
    const auto is_argument = [](const Allocation &one) {
        for (const unsigned char *pointer : machine->pointers)
            if (one.contains(pointer))
                return true;
        return false;
    };
    char found[160] = "";
    {
        const std::lock_guard<std::mutex> guard(allocations_lock);
        for (const Allocation &one : allocations) {
            if (!is_argument(one))
                continue;
            for (unsigned char *byte = one.first(); byte < one.end() && !*found; byte++) {
                if (byte == one.data)
                    byte += one.bytes;
                if (byte < one.end() && *byte != PATTERN)
                    snprintf(found, sizeof found, "wrote byte %td of an allocation of %zu bytes", byte - one.data,
                             one.bytes);
            }
        }
    }
    if (*found)
        fail("%s", found);
}

// An access that the memory does not allow becomes an error of the launch that made it.
static struct sigaction action_before;

// Describes an access that was not allowed.
static void describe_access(const unsigned char *address, char *to, size_t bytes) {
    const Machine &m = *machine;
    const unsigned char *const shared_pages = m.workspace->shared_pages;
    const unsigned char *stack = m.workspace->stacks + m.now->number * (STACK_BYTES + STACK_GUARD_BYTES);
    snprintf(to, bytes, "touches memory that was not allocated, at %p", (const void *)address);
    if (stack <= address && address < stack + STACK_GUARD_BYTES)
        snprintf(to, bytes, "needs more than %zu bytes of stack", STACK_BYTES);
    if (shared_pages <= address && address < shared_pages + SHARED_BYTES_MAX + 2 * PAGE)
        snprintf(to, bytes, "touches byte %td of %zu bytes of shared memory", address - m.shared, m.shared_bytes);
    const std::lock_guard<std::mutex> guard(allocations_lock);
    for (const Allocation &one : allocations)
        if (one.pages <= address && address < one.end() + GUARD_BYTES)
            snprintf(to, bytes, "touches byte %td of an allocation of %zu bytes", address - one.data, one.bytes);
}

static void handle_fault(int signal, siginfo_t *info, void *context) {
    if (machine && machine->now) {
        char access[160];
        describe_access((const unsigned char *)info->si_addr, access, sizeof access);
        fail("%s", access);
    }
    if (action_before.sa_flags & SA_SIGINFO)
        action_before.sa_sigaction(signal, info, context);
    else
        sigaction(signal, &action_before, nullptr);   // The access is repeated, with the action before.
}

static void catch_faults() {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action = {};
        action.sa_sigaction = handle_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, &action_before);
    });
}

}  // namespace emulation
