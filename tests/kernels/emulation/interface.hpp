// The C interface of the shared object. It follows the table `kernels` (`emulation::Kernel`), which the test writes.

// Memory of `bytes`, all of their bits set, aligned to 16; null if there is none.
extern "C" void *emulated_allocate(u64 bytes) { return emulation::allocate(bytes); }
// Returns 0, or 1 if it is no allocation.
extern "C" int emulated_release(void *data) { return emulation::release(data) ? 0 : 1; }
// Runs a kernel to its end. Returns 0, or 1 with a message that names the kernel, and block and thread of the
// mistake.
extern "C" int emulated_launch(const emulation::Request *request, char *message, u64 message_bytes) {
    for (const emulation::Kernel &kernel : kernels) {
        if (strcmp(kernel.name, request->kernel) != 0)
            continue;
        if (kernel.arity == request->argument_count)
            return emulation::launch(kernel, *request, message, message_bytes);
        snprintf(message, message_bytes, "kernel `%s` has %zu arguments, not %llu", kernel.name, kernel.arity,
                 request->argument_count);
        return 1;
    }
    snprintf(message, message_bytes, "no kernel `%s`", request->kernel);
    return 1;
}
