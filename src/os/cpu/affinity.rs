//! The processors and the memory nodes that a process may use.

use std::io;

use rustix::process::Pid;

/// Processors and memory nodes below this number fit a mask.
const MASK_BITS: usize = 8192;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;
const MASK_WORDS: usize = MASK_BITS / WORD_BITS;

/// A set of processors or memory nodes, in the kernel's format.
#[derive(Clone)]
struct Mask([libc::c_ulong; MASK_WORDS]);

impl Mask {
    /// Creates a mask. Numbers above the bound are omitted; no kernel uses them.
    fn of(numbers: &[u32]) -> Self {
        let mut words = [0; MASK_WORDS];
        for number in numbers {
            if let Some(word) = words.get_mut(*number as usize / WORD_BITS) {
                *word |= 1 << (*number as usize % WORD_BITS);
            }
        }
        Self(words)
    }

    fn numbers(&self) -> Vec<u32> {
        let is_set = |bit: &usize| self.0[bit / WORD_BITS] >> (bit % WORD_BITS) & 1 == 1;
        (0..MASK_BITS).filter(is_set).map(|bit| bit as u32).collect()
    }
}

/// Returns the processors that a process may use; without a pid, those of this process.
pub fn processors(pid: Option<Pid>) -> io::Result<Vec<u32>> {
    let mut mask = Mask::of(&[]);
    let pid = pid.map_or(0, Pid::as_raw_pid);
    // SAFETY: the kernel writes at most as many bytes as the mask has.
    let written = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, pid, size_of_val(&mask.0), mask.0.as_mut_ptr())
    };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(mask.numbers()) }
}

/// The binding of a process: created before a fork, applied after it.
#[derive(Clone)]
pub struct Binding {
    processors: Mask,
    memory: Option<MemoryPolicy>,
}

/// A memory policy of the kernel with its nodes.
#[derive(Clone)]
pub struct MemoryPolicy {
    mode: libc::c_int,
    nodes: Mask,
}

impl MemoryPolicy {
    /// Memory from these nodes and no others.
    pub fn bind(nodes: &[u32]) -> Self {
        Self { mode: libc::MPOL_BIND, nodes: Mask::of(nodes) }
    }

    /// Memory from this node as long as it has some.
    pub fn prefer(node: u32) -> Self {
        Self { mode: libc::MPOL_PREFERRED, nodes: Mask::of(&[node]) }
    }

    /// Checks whether the kernel allows this policy, which containers often may not set. Afterwards
    /// this thread has the default policy.
    pub fn check_allowed(&self) -> io::Result<()> {
        self.apply()?;
        let usual = Self { mode: libc::MPOL_DEFAULT, nodes: Mask::of(&[]) };
        usual.apply()
    }

    fn apply(&self) -> io::Result<()> {
        let has_nodes = self.mode != libc::MPOL_DEFAULT;
        let (nodes, bits) =
            if has_nodes { (self.nodes.0.as_ptr(), MASK_BITS + 1) } else { (std::ptr::null(), 0) };
        // SAFETY: the kernel reads as many bits as the mask has; it counts one too many on purpose.
        match unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, nodes, bits) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Binding {
    /// Creates a binding to these processors, and to memory if a policy is given.
    pub fn new(processors: &[u32], memory: Option<MemoryPolicy>) -> Self {
        Self { processors: Mask::of(processors), memory }
    }

    /// Binds this process. Async-signal-safe. If the kernel denies the memory policy after all,
    /// memory stays unbound.
    pub(crate) fn apply(&self) -> io::Result<()> {
        let mask = &self.processors.0;
        // SAFETY: the kernel reads as many bytes as the mask has.
        let done = unsafe {
            libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(mask), mask.as_ptr())
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        if let Some(memory) = &self.memory {
            let _ = memory.apply();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_returns_its_numbers() {
        assert_eq!(Mask::of(&[0, 63, 64, 8191, 8192]).numbers(), [0, 63, 64, 8191]);
    }

    /// Returns the policy and the nodes of this thread, as the kernel reports them.
    fn current_policy() -> io::Result<(libc::c_int, Vec<u32>)> {
        let (mut mode, mut nodes) = (0, Mask::of(&[]));
        // SAFETY: the kernel writes one number and as many bits as the mask has.
        let status = unsafe {
            let nodes = nodes.0.as_mut_ptr();
            libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nodes, MASK_BITS, 0usize, 0usize)
        };
        if status == 0 { Ok((mode, nodes.numbers())) } else { Err(io::Error::last_os_error()) }
    }

    /// A policy applies to one thread; this thread ends with the test.
    #[test]
    fn memory_policy_equals_kernel_report() {
        let thread = std::thread::spawn(|| {
            if let Err(error) = MemoryPolicy::bind(&[0]).apply() {
                // A sandbox denies reading: then trying the policy is denied in the same way.
                let denied = MemoryPolicy::bind(&[0]).check_allowed().expect_err("denied again");
                assert_eq!(denied.raw_os_error(), error.raw_os_error());
                return;
            }
            assert_eq!(current_policy().expect("readable"), (libc::MPOL_BIND, vec![0]));
            MemoryPolicy::prefer(0).apply().expect("there is a node 0");
            assert_eq!(current_policy().expect("readable"), (libc::MPOL_PREFERRED, vec![0]));
            MemoryPolicy::bind(&[0]).check_allowed().expect("allowed again");
            assert_eq!(current_policy().expect("readable").0, libc::MPOL_DEFAULT);
        });
        thread.join().expect("no assertion fails");
    }

    #[test]
    fn process_may_use_a_processor() {
        assert!(!processors(None).expect("the kernel reports them").is_empty());
    }
}
