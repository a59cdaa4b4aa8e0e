//! Words that name hosts in the notation of another launcher.

use crate::base::HostName;

/// Converts `node01=8` → `node01:8`.
pub(in crate::cli) fn as_host_list(word: &str) -> Option<String> {
    let (host, slots) = word.split_once('=')?;
    let is_number = !slots.is_empty() && slots.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && HostName::parse(host).is_ok()).then(|| format!("{host}:{slots}"))
}
