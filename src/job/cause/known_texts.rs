//! Texts that known components print when they fail: the table of phrases and its classifier.
//!
//! A collective that loses a rank fails on all other ranks as well, usually earlier and with more
//! output than on the rank that caused it. The phrases separate a failure of the process itself
//! from the report that a peer was lost or did not take part.

use crate::base::Rank;

/// Class of a failure, by its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// The process itself: an exception, a crash, memory that ran out.
    Own,
    /// A connection to another rank ended.
    LostPeer,
    /// Another rank did not take part in time.
    TimedOut,
    /// The process was asked to stop.
    Stopped,
}

/// One row of the table.
struct Phrase {
    /// The component that prints the text.
    component: &'static str,
    class: FailureClass,
    text: &'static str,
}

const fn own(component: &'static str, text: &'static str) -> Phrase {
    Phrase { component, class: FailureClass::Own, text }
}

const fn lost(component: &'static str, text: &'static str) -> Phrase {
    Phrase { component, class: FailureClass::LostPeer, text }
}

const fn timed_out(component: &'static str, text: &'static str) -> Phrase {
    Phrase { component, class: FailureClass::TimedOut, text }
}

/// Component of the kernel's own texts for a closed connection: they are about a peer only if a
/// component that connects ranks prints them.
const KERNEL: &str = "kernel";
/// Words of components that connect ranks; one of them must accompany the text of the kernel.
const RANK_COMPONENT_WORDS: &[&str] = &[
    "gloo",
    "c10d",
    "TCPStore",
    "SocketImpl",
    "NCCL",
    "ProcessGroup",
    "DistNetworkError",
    "DistBackendError",
    "DistStoreError",
    "btl_tcp",
    "RuntimeError: Connection reset by peer",
    "RuntimeError: Broken pipe",
];

/// What a rank of remuda reports that learned of a failure from another one.
const TOLD: [&str; 2] = ["aborted the group:", "failed first, in "];

/// The table of phrases. If a text contains several, the first one in the text decides.
const PHRASES: &[Phrase] = &[
    timed_out("gloo", "Timed out waiting"),
    timed_out("gloo", "Application timeout caused pair closure"),
    timed_out("gloo", "Connect timeout"),
    lost("gloo", "Connection closed by peer"),
    lost("gloo", "Read error ["),
    lost(KERNEL, "Connection reset by peer"),
    lost(KERNEL, "Broken pipe"),
    lost(KERNEL, "Connection timed out"),
    lost("NCCL", "remote process exited or there was a network error"),
    lost("NCCL", "ncclRemoteError"),
    lost("NCCL", "Connection closed by remote peer"),
    lost("NCCL", "Net : Call to recv from"),
    lost("NCCL", "Net : Connect to"),
    lost("NCCL", "socketPollConnect"),
    lost("NCCL", "socketProgressOpt: Call to"),
    lost("NCCL", "Got completion from peer"),
    own("NCCL", "unhandled cuda error"),
    own("NCCL", "ncclUnhandledCudaError"),
    own("NCCL", "NCCL WARN Cuda failure"),
    timed_out("ProcessGroupNCCL", "Watchdog caught collective operation timeout"),
    timed_out("ProcessGroupNCCL", "due to a collective timeout from rank"),
    timed_out("ProcessGroupNCCL", "ProcessGroupNCCL watchdog hang"),
    lost("TCPStore", "ailed to recv, got 0 bytes"),
    lost("TCPStore", "recvValue failed on"),
    lost("TCPStore", "recvValueWithTimeout failed on"),
    lost("TCPStore", "sendBytes failed on"),
    lost("TCPStore", "TCPStore server has shut down too early"),
    timed_out("TCPStore", "wait timeout after"),
    timed_out("TCPStore", "Socket Timeout"),
    timed_out("TCPStore", "seconds waiting for clients"),
    timed_out("TCPStore", "The client socket has timed out after"),
    timed_out("torch.distributed", "failed to pass monitoredBarrier"),
    lost("torch.distributed", "successfully reached monitoredBarrier, but received errors"),
    timed_out("torch.distributed", "Timed out initializing process group"),
    timed_out("torch.distributed", "RendezvousTimeoutError"),
    own("torch.distributed", "EADDRINUSE"),
    own("torch.multiprocessing", "terminated with the following error"),
    own("torch.multiprocessing", "terminated with signal"),
    own("DataLoader", "DataLoader worker (pid"),
    own("DataLoader", "in DataLoader worker process"),
    own("CUDA", "CUDA out of memory"),
    own("CUDA", "HIP out of memory"),
    own("CUDA", "CUDA error:"),
    own("CUDA", "CUBLAS_STATUS_"),
    own("CUDA", "CUDNN_STATUS_"),
    own("faulthandler", "Fatal Python error: Segmentation fault"),
    own("faulthandler", "Fatal Python error: Bus error"),
    own("faulthandler", "Fatal Python error: Aborted"),
    own("faulthandler", "Fatal Python error: Floating point exception"),
    own("glibc", "double free or corruption"),
    own("glibc", "free(): invalid"),
    own("glibc", "stack smashing detected"),
    own("glibc", "Assertion `"),
    own("shell", "Segmentation fault"),
    own("libstdc++", "std::bad_alloc"),
    own("Rust", "panicked at"),
    own("Open MPI", "MPI_ABORT was invoked on rank"),
    own("MPICH", "application called MPI_Abort"),
    lost("Open MPI", "An MPI communication peer process has unexpectedly disconnected"),
    lost("Open MPI", "remote peer unexpectedly closed connection"),
    lost("Open MPI", "ERR_PROC_FAILED"),
    lost("MPICH", "Communication error with rank"),
    lost("UCX", "Connection reset by remote peer"),
    lost("UCX", "Endpoint timeout"),
    lost("TensorPipe", "EOF: end of file (this error originated at tensorpipe"),
    lost(
        "Horovod",
        "Horovod has been shut down. This was caused by an exception on one of the ranks",
    ),
    timed_out("Horovod", "submitted to be reduced, gathered or broadcasted by subset of ranks"),
    lost("JAX", "failed with error: Unavailable"),
    timed_out("JAX", "Barrier timed out"),
    lost("remuda::runtime", "` is gone"),
    lost("remuda::runtime", "before it took part"),
    lost("remuda::runtime", TOLD[0]),
    lost("remuda::runtime", TOLD[1]),
    timed_out("remuda::runtime", "the deadline passed while waiting for"),
    Phrase { component: "Python", class: FailureClass::Stopped, text: "KeyboardInterrupt" },
    Phrase { component: "torchrun", class: FailureClass::Stopped, text: "SignalException" },
];

/// Class of a text, by the first known phrase in it.
pub fn classify(text: &str) -> Option<FailureClass> {
    first_phrase(text).map(|(_, phrase)| phrase.class)
}

/// Whether a text says that another rank told this one of a failure.
pub(crate) fn tells_of_another(text: &str) -> bool {
    TOLD.iter().any(|phrase| text.contains(phrase))
}

/// Component whose phrase a text contains.
pub fn component_of(text: &str) -> Option<&'static str> {
    first_phrase(text).map(|(_, phrase)| phrase.component)
}

fn first_phrase(text: &str) -> Option<(usize, &'static Phrase)> {
    let is_of_ranks = RANK_COMPONENT_WORDS.iter().any(|word| text.contains(word));
    let found = PHRASES.iter().filter_map(|phrase| {
        let is_meant = phrase.component != KERNEL || is_of_ranks;
        Some((text.find(phrase.text).filter(|_| is_meant)?, phrase))
    });
    found.min_by_key(|(at, _)| *at)
}

/// Ranks that a text names as missing. The number is bounded, because a text may be anything.
pub(crate) fn missing_ranks(text: &str) -> Vec<Rank> {
    const BEFORE: &str = " failed to pass monitoredBarrier";
    const AFTER: &str = "the deadline passed while waiting for rank";
    if let Some((head, _)) = text.split_once(BEFORE) {
        let line = head.rsplit('\n').next().unwrap_or_default();
        // `[Rank 0]: Ranks 1, 2`
        return ranks(line.rsplit("Rank").next().unwrap_or_default());
    }
    text.split_once(AFTER).map(|(_, tail)| ranks(tail)).unwrap_or_default()
}

/// `s 1, 2, 7 and 3 more`
fn ranks(list: &str) -> Vec<Rank> {
    const NAMED_MAX: usize = 64;
    let list = list.strip_prefix('s').unwrap_or(list);
    let words = list.split(',').map(|word| word.split_whitespace().next().unwrap_or_default());
    let number = |word: &str| {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse().ok().map(Rank)
    };
    words.map_while(number).take(NAMED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrase_decides_class_and_component() {
        use FailureClass::{LostPeer, Own, Stopped, TimedOut};
        #[track_caller]
        fn check(text: &str, class: FailureClass, component: &str) {
            assert_eq!(classify(text), Some(class), "{text}");
            assert_eq!(component_of(text), Some(component), "{text}");
        }
        check(
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection \
             closed by peer [127.0.0.1]:8090. This is typically caused by a remote worker crashing.",
            LostPeer,
            "gloo",
        );
        check(
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:545] Read error \
             [127.0.0.1]:5538: Connection reset by peer.",
            LostPeer,
            "gloo",
        );
        check(
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for \
             recv operation to complete",
            TimedOut,
            "gloo",
        );
        check("torch.distributed.DistNetworkError: Broken pipe", LostPeer, "kernel");
        check("RuntimeError: Connection reset by peer", LostPeer, "kernel");
        check(
            "torch.distributed.DistStoreError: wait timeout after 2000ms, keys: /default_pg/0//x0",
            TimedOut,
            "TCPStore",
        );
        check("RuntimeError: Socket Timeout", TimedOut, "TCPStore");
        check(
            "[rank3]:[E ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600013 \
             milliseconds before timing out.",
            TimedOut,
            "ProcessGroupNCCL",
        );
        check(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3763, remote \
             process exited or there was a network error, NCCL version 2.28.8",
            LostPeer,
            "NCCL",
        );
        check("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", Own, "CUDA");
        check(
            "Process group watchdog thread terminated with exception: CUDA error: an illegal memory \
             access was encountered",
            Own,
            "CUDA",
        );
        check(
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ",
            Own,
            "DataLoader",
        );
        check(
            "all_reduce (operation 2, 4 bytes) failed on rank 1: rank 3 on host `n2` is gone",
            LostPeer,
            "remuda::runtime",
        );
        check(
            "all_reduce (operation 2, 4 bytes) failed on rank 1: rank 0 failed first, in all_reduce: the \
             deadline passed while waiting for rank 2, after 3.0 s",
            LostPeer,
            "remuda::runtime",
        );
        check("KeyboardInterrupt", Stopped, "Python");
    }

    #[test]
    fn network_error_of_a_script_is_a_failure_of_its_own() {
        for text in [
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            "BrokenPipeError: [Errno 32] Broken pipe",
            "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, \
             'Connection reset by peer'))",
            "ValueError: bad batch",
            "",
        ] {
            assert_eq!(classify(text), None, "{text}");
        }
    }

    #[test]
    fn missing_ranks_are_parsed() {
        #[track_caller]
        fn check(text: &str, expect: &[u32]) {
            let expect: Vec<Rank> = expect.iter().copied().map(Rank).collect();
            assert_eq!(missing_ranks(text), expect, "{text}");
        }
        check("RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 2000 ms", &[2]);
        check("[Rank 0]: Ranks 1, 12 failed to pass monitoredBarrier in 5 ms\n x", &[1, 12]);
        check("Rank failed to pass monitoredBarrier", &[]);
        check("failed on rank 1: the deadline passed while waiting for rank 3", &[3]);
        check("the deadline passed while waiting for ranks 3, 4, 5 and 9 more", &[3, 4, 5]);
        check("Timed out waiting 3000ms for recv", &[]);
    }

    proptest::proptest! {
        /// Any text has at most one class, and nothing panics.
        #[test]
        fn any_text_is_classified(text in ".{0,200}", phrase in 0..PHRASES.len()) {
            let _ = (classify(&text), missing_ranks(&text));
            let phrase = &PHRASES[phrase];
            let text = format!("c10d {}", phrase.text);
            proptest::prop_assert!(classify(&text).is_some());
        }
    }
}
