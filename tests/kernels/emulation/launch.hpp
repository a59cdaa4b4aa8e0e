// Launches of kernels on the emulated device.

namespace emulation {

template <class... A, size_t... I>
static void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*(A *)arguments[I]...);
}
template <class... A> constexpr size_t arity_of(void (*)(A...)) { return sizeof...(A); }
// Calls a kernel with arguments that are given by address, as in the driver of CUDA.
template <auto kernel> static void enter_kernel(void **arguments) {
    call(kernel, arguments, std::make_index_sequence<arity_of(kernel)>());
}


// Notes the memory that a launch may touch.
template <class T> static void note(T *pointer) { machine->pointers.push_back((const unsigned char *)pointer); }
template <class T> static void note(T) {}
template <class... A, size_t... I>
static void note_each(void (*)(A...), void **arguments, std::index_sequence<I...>) {
    (note(*(A *)arguments[I]), ...);
}
template <auto kernel> static void note_pointers(void **arguments) {
    note_each(kernel, arguments, std::make_index_sequence<arity_of(kernel)>());
}

// A row of the table of kernels.
struct Kernel {
    const char *name;
    Entry entry, note;
    size_t arity;
};

// What a test launches. The layout is that of `LaunchRequest` in `ffi_emulated.rs`.
struct Request {
    const char *kernel;
    unsigned grid[3], block[3];
    u64 shared_bytes;
    void **arguments;
    u64 argument_count;
    u32 schedule;
    u32 mistake, mistake_line;
    u64 seed;
    Traffic *traffic;   // null: not counted
};

// Runs all blocks; `fail` returns here.
static int run_launch(const Kernel &kernel, u64 seed, bool counts) {
    Machine &m = *machine;
    if (sigsetjmp(m.home, 1) != 0)
        return 1;
    catch_faults();
    const size_t threads = (size_t)m.block.x * m.block.y * m.block.z;
    if (threads == 0 || 1024 < threads)
        fail("a block has 1 to 1024 threads, not %zu", threads);
    if (SHARED_BYTES_MAX < m.shared_bytes)
        fail("a block has at most %zu bytes of shared memory, not %zu", SHARED_BYTES_MAX, m.shared_bytes);
    m.fibers.resize(threads);
    m.warps.resize((threads + WARP_LANES - 1) / WARP_LANES);
    if (!reserve_memory())
        fail("no memory for %zu threads", threads);
    kernel.note(m.arguments);
    if (counts)
        start_count();
    for (unsigned z = 0; z < m.grid.z; z++)
        for (unsigned y = 0; y < m.grid.y; y++)
            for (unsigned x = 0; x < m.grid.x; x++)
                run_block({x, y, z}, seed);
    check_allocations();
    return 0;
}

static int launch(const Kernel &kernel, const Request &request, char *message, size_t message_bytes) {
    const auto dim = [](const unsigned (&of)[3]) { return Dim{of[0], of[1], of[2]}; };
    std::unique_ptr<Machine> made(new Machine);
    made->kernel = kernel.name;
    made->entry = kernel.entry;
    made->arguments = request.arguments;
    made->grid = dim(request.grid);
    made->block = dim(request.block);
    made->schedule = (Schedule)request.schedule;
    made->random = request.seed;
    made->mistake = (Mistake)request.mistake;
    made->mistake_line = (int)request.mistake_line;
    made->shared_bytes = request.shared_bytes;
    made->message = message;
    made->message_bytes = message_bytes;
    made->workspace = take_workspace();
    machine = made.get();
    const int status = run_launch(kernel, request.seed, request.traffic != nullptr);
    if (request.traffic)
        end_count(*request.traffic);
    machine = nullptr;
    give_back(std::move(made->workspace));
    return status;
}

}  // namespace emulation
