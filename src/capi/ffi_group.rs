//! Groups: joining, subgroups, aborts, notes.

use std::ffi::c_char;
use std::time::Duration;

use crate::capi::call_error::CallError;
use crate::capi::ffi_arguments::{
    ABI_VERSION, CallOptions, array, guarded, init_options, on_group, place, text,
};
use crate::runtime::{Group, Note};

/// Returns the version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn remuda_abi() -> u32 {
    ABI_VERSION
}

/// Returns the version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn remuda_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Joins the group of the job that the environment describes; see [`Group::init`].
///
/// # Safety
/// `options` is null or points to options; `group` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_init(options: *const CallOptions, group: *mut *mut Group) -> i32 {
    guarded(|| {
        // SAFETY: the caller promises it.
        let (options, group) = unsafe { (init_options(options)?, place(group, "group")?) };
        *group = Box::into_raw(Box::new(Group::init(&options)?));
        Ok(())
    })
}

/// Returns 1 if remuda has started this process as a worker, else 0; see [`Group::is_worker`].
#[unsafe(no_mangle)]
pub extern "C" fn remuda_is_worker() -> i32 {
    i32::from(Group::is_worker())
}

/// Makes a group of `ranks` ranks in this process; each is used by a thread of its own. For tests.
///
/// # Safety
/// `options` is null or points to options; `groups` is null or has room for `ranks` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_threads(
    ranks: u32,
    options: *const CallOptions,
    groups: *mut *mut Group,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller promises it.
        let options = unsafe { init_options(options) }?;
        // SAFETY: the caller promises it.
        unsafe { place(groups, "groups") }?;
        for (rank, group) in Group::threads_with(ranks as usize, &options)?.into_iter().enumerate()
        {
            // SAFETY: the caller promises room for all ranks.
            unsafe { *groups.add(rank) = Box::into_raw(Box::new(group)) };
        }
        Ok(())
    })
}

/// Makes a group of some ranks of `parent`, in their order; only they call it. See [`Group::of`].
///
/// # Safety
/// `parent` is null or a group that has not been freed; `ranks` has `count` values; `name` ends with a zero byte;
/// `options` is null or points to options; `group` may be written. Pointers may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_group_of(
    parent: *const Group,
    ranks: *const u32,
    count: usize,
    name: *const c_char,
    options: *const CallOptions,
    group: *mut *mut Group,
) -> i32 {
    let call = |parent: &Group| {
        // SAFETY: the caller promises it.
        let (ranks, name) = unsafe { (array(ranks, count, "ranks")?, text(name, "name")?) };
        let ranks: Vec<usize> = ranks.iter().map(|rank| *rank as usize).collect();
        // SAFETY: the caller promises it.
        let place = unsafe { place(group, "group") }?;
        let subgroup = if options.is_null() {
            parent.of(&ranks, name)?
        } else {
            // SAFETY: the caller promises it.
            parent.of_with(&ranks, name, &unsafe { init_options(options) }?)?
        };
        *place = Box::into_raw(Box::new(subgroup));
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(parent, call) }
}

/// Leaves a group and frees it, after its started operations have ended; null is allowed.
///
/// # Safety
/// `group` is null or a group that has not been freed, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_free(group: *mut Group) -> i32 {
    guarded(|| {
        if !group.is_null() {
            // SAFETY: the caller promises it; a function of this interface made the box.
            drop(unsafe { Box::from_raw(group) });
        }
        Ok(())
    })
}

/// Returns the rank of this worker in the group; 0 for null.
///
/// # Safety
/// `group` is null or a group that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_rank(group: *const Group) -> u32 {
    // SAFETY: the caller promises it.
    unsafe { group.as_ref() }.map_or(0, |group| group.rank() as u32)
}

/// Returns the number of ranks of the group; 0 for null.
///
/// # Safety
/// `group` is null or a group that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_size(group: *const Group) -> u32 {
    // SAFETY: the caller promises it.
    unsafe { group.as_ref() }.map_or(0, |group| group.world_size() as u32)
}

/// Sets the deadline of the operations of this rank that begin later.
///
/// # Safety
/// `group` is null or a group that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_set_timeout(group: *const Group, timeout_ms: u64) -> i32 {
    let call = |group: &Group| {
        if timeout_ms == 0 {
            return Err(CallError::argument("`timeout_ms` is 0"));
        }
        group.set_timeout(Duration::from_millis(timeout_ms));
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Returns 0 if the group is not known to have failed, else the kind of its failure; does not wait.
///
/// # Safety
/// `group` is null or a group that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_check(group: *const Group) -> i32 {
    let call = |group: &Group| match group.failure() {
        Some(cause) => Err(CallError::of_cause(&cause, format!("the group has failed: {cause}"))),
        None => Ok(()),
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Aborts the group: operations that are running fail on every rank.
///
/// # Safety
/// `group` is null or a group that has not been freed; `reason` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_abort(group: *const Group, reason: *const c_char) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        group.abort(unsafe { text(reason, "reason") }?);
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Reports to the launcher that a training step has ended; does nothing without a launcher. `steps` is 0, and `loss`
/// and `tokens_per_s` are NaN, if they are not known.
///
/// # Safety
/// `group` is null or a group that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_note_step(
    group: *const Group,
    step: u64,
    steps: u64,
    loss: f64,
    tokens_per_s: f64,
) -> i32 {
    let call = |group: &Group| {
        let known = |value: f64| (!value.is_nan()).then_some(value);
        group.note(&Note::Step {
            step,
            steps: (steps != 0).then_some(steps),
            loss: known(loss),
            tokens_per_s: known(tokens_per_s),
        });
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}
