//! Date and time in the user's time zone, and in UTC.

use std::time::Duration;

/// Formats a time since 1970 as `20261121063929`: year, month, day, hour, minute and second of the
/// local time zone.
pub fn local_stamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs() as libc::time_t;
    // SAFETY: a `tm` is plain data, for which all zeros are a value.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to local values; glibc guards the time zone it reads.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut local) };
    let (year, month) = (local.tm_year + 1900, local.tm_mon + 1);
    let (day, hour, minute, second) = (local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

/// Formats a time since 1970 in UTC as `20261122-173109Z`, for file names that sort by time.
pub fn utc_stamp(since_1970: Duration) -> String {
    utc(since_1970).replace(['-', ':'], "").replace('T', "-")
}

/// Formats a time since 1970 in UTC as in RFC 3339: `2026-11-22T17:31:09Z`.
pub fn utc(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns year, month and day for a number of days after 1970-01-01. Years are counted from March,
/// so that a leap day is the last day of its year; 400 years have 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_time_follows_rfc_3339() {
        #[track_caller]
        fn check(seconds: u64, expect: &str) {
            assert_eq!(utc(Duration::from_secs(seconds)), expect);
        }
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_399, "2000-02-28T23:59:59Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(951_868_800, "2000-03-01T00:00:00Z");
        check(1_735_689_599, "2024-12-31T23:59:59Z");
        check(4_107_542_400, "2100-03-01T00:00:00Z");
    }

    #[test]
    fn utc_stamp_is_plain_and_sorts_by_time() {
        assert_eq!(utc_stamp(Duration::from_secs(951_782_399)), "20000228-235959Z");
        assert!(utc_stamp(Duration::from_secs(9)) < utc_stamp(Duration::from_secs(10)));
    }

    #[test]
    fn local_stamp_has_fourteen_digits_and_sorts_by_time() {
        let day = |days: u64| local_stamp(Duration::from_secs(days * 86_400));
        // No time zone differs from UTC by more than a day.
        assert!(["20011231", "20020101", "20020102"].contains(&&day(11_688)[..8]));
        assert!(day(11_688) < day(11_689) && day(11_689) < day(20_000));
        assert!(day(20_000).len() == 14 && day(20_000).bytes().all(|byte| byte.is_ascii_digit()));
    }
}
