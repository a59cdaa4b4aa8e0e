//! The date where the user lives.

use std::time::Duration;

/// `20261121063929`: a time since 1970 as year, month, day, hour, minute and second of the local
/// time zone.
pub fn local_stamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs() as libc::time_t;
    // SAFETY: a `tm` is plain data, for which all zeros are a value.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of our own; glibc guards the time zone it reads.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut local) };
    let (year, month) = (local.tm_year + 1900, local.tm_mon + 1);
    let (day, hour, minute, second) = (local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_has_fourteen_digits_and_sorts_by_time() {
        let day = |days: u64| local_stamp(Duration::from_secs(days * 86_400));
        // No time zone is further than a day from the meridian.
        assert!(["20011231", "20020101", "20020102"].contains(&&day(11_688)[..8]));
        assert!(day(11_688) < day(11_689) && day(11_689) < day(20_000));
        assert!(day(20_000).len() == 14 && day(20_000).bytes().all(|byte| byte.is_ascii_digit()));
    }
}
