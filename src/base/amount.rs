//! Amounts of memory and sizes of files as text, the same on every screen and in every error.

/// Formats an amount of memory in a suitable unit: `512 B`, `1.5 GiB`.
pub fn show_bytes(mut bytes: f64) -> String {
    const UNITS: [&str; 8] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
    if bytes < 1024.0 {
        return format!("{bytes:.0} B");
    }
    for unit in UNITS {
        bytes /= 1024.0;
        if bytes < 1024.0 {
            return format!("{bytes:.1} {unit}");
        }
    }
    "more than 1024 YiB".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_have_their_unit() {
        assert_eq!(show_bytes(1023.0), "1023 B");
        assert_eq!(show_bytes(1536.0), "1.5 KiB");
        assert_eq!(show_bytes((23_u64 << 30) as f64), "23.0 GiB");
        assert_eq!(show_bytes(1e26), "82.7 YiB");
        assert_eq!(show_bytes(1e99), "more than 1024 YiB");
    }
}
