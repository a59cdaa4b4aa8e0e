//! Folding of names into a list with ranges.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::net::IpAddr;

/// Folds names into a list that expands to exactly these, in this order: `n[1-3,7],login`.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    fold_split(names.into_iter().map(SplitName::of))
}

/// The same for readers that accept no text after a bracket, such as Slurm: `n1-ib,n2-ib`.
pub fn fold_without_suffix<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let split = |name| Some(SplitName::of(name)).filter(|split| split.suffix.is_empty());
    fold_split(names.into_iter().map(|name| split(name).unwrap_or(SplitName::whole(name))))
}

fn fold_split<'a>(names: impl Iterator<Item = SplitName<'a>>) -> String {
    let mut out = String::new();
    let mut runs = Runs::default();
    let mut current: Option<SplitName<'a>> = None;
    for name in names {
        if let Some(group) = current.filter(|group| !group.is_sibling(&name)) {
            group.show(&runs, &mut out);
            runs = Runs::default();
        }
        runs.extend(name.number);
        current = Some(name);
    }
    if let Some(group) = current {
        group.show(&runs, &mut out);
    }
    out
}

/// Folds a set of names: each once, numbers in ascending order, groups in the order of their first
/// name.
pub fn fold_set<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    fold_each(&mut names.into_iter())
}

fn fold_each<'a>(names: &mut dyn Iterator<Item = &'a str>) -> String {
    let mut groups: Vec<(SplitName<'a>, Vec<Number<'a>>)> = Vec::new();
    let mut indices: HashMap<(&str, &str, bool), usize> = HashMap::new();
    for name in names {
        let name = SplitName::of(name);
        let key = (name.prefix, name.suffix, name.number.is_some());
        let index = *indices.entry(key).or_insert(groups.len());
        if index == groups.len() {
            groups.push((name, Vec::new()));
        }
        groups[index].1.extend(name.number);
    }
    let mut out = String::new();
    for (group, mut numbers) in groups {
        numbers.sort_unstable_by_key(|number| (number.digits.len(), number.digits));
        numbers.sort_by_key(|number| number.value);
        numbers.dedup_by_key(|number| number.digits);
        let mut runs = Runs::default();
        runs.extend(numbers);
        group.show(&runs, &mut out);
    }
    out
}

/// The names that differ from a name only in their last number.
pub fn siblings<'a>(
    name: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = &'a str> {
    let name = SplitName::of(name);
    names.into_iter().filter(move |other| name.is_sibling(&SplitName::of(other)))
}

/// A name split around its last number.
#[derive(Clone, Copy)]
struct SplitName<'a> {
    prefix: &'a str,
    number: Option<Number<'a>>,
    suffix: &'a str,
}

#[derive(Clone, Copy, PartialEq)]
struct Number<'a> {
    digits: &'a str,
    value: u64,
}

impl<'a> SplitName<'a> {
    fn whole(name: &'a str) -> Self {
        Self { prefix: name, number: None, suffix: "" }
    }

    /// Splits a name. An address is not split, nor is a number that is too large for readers.
    fn of(name: &'a str) -> Self {
        const DIGITS_MAX: usize = 18;
        let bytes = name.as_bytes();
        let Some(last) = bytes.iter().rposition(u8::is_ascii_digit) else {
            return Self::whole(name);
        };
        let before = bytes[..last].iter().rposition(|byte| !byte.is_ascii_digit());
        let first = before.map_or(0, |at| at + 1);
        let digits = &name[first..=last];
        let is_address = || match bytes[0] {
            b'[' => true,
            b':' | b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => name.parse::<IpAddr>().is_ok(),
            _ => false,
        };
        if DIGITS_MAX < digits.len() || is_address() {
            return Self::whole(name);
        }
        let value = digits.bytes().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0'));
        let number = Some(Number { digits, value });
        Self { prefix: &name[..first], number, suffix: &name[last + 1..] }
    }

    fn is_sibling(&self, other: &Self) -> bool {
        let has_number = self.number.is_some() && other.number.is_some();
        has_number && self.prefix == other.prefix && self.suffix == other.suffix
    }

    fn show(&self, runs: &Runs<'a>, out: &mut String) {
        if !out.is_empty() {
            out.push(',');
        }
        let (prefix, suffix) = (self.prefix, self.suffix);
        let shown = match runs.0.as_slice() {
            [] => write!(out, "{prefix}"),
            [(first, last)] if first == last => write!(out, "{prefix}{}{suffix}", first.digits),
            _ => write!(out, "{prefix}[{runs}]{suffix}"),
        };
        shown.expect("writing to a String does not fail");
    }
}

/// Numbers in ascending order: the first and the last of each run of adjacent ones.
#[derive(Default)]
struct Runs<'a>(Vec<(Number<'a>, Number<'a>)>);

impl<'a> Extend<Number<'a>> for Runs<'a> {
    fn extend<I: IntoIterator<Item = Number<'a>>>(&mut self, numbers: I) {
        for number in numbers {
            match self.0.last_mut() {
                Some((first, last))
                    if last.value + 1 == number.value && first.has_same_width(number) =>
                {
                    *last = number;
                }
                _ => self.0.push((number, number)),
            }
        }
    }
}

impl fmt::Display for Runs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}", first.digits)?;
            if first != last {
                write!(f, "-{}", last.digits)?;
            }
        }
        Ok(())
    }
}

impl Number<'_> {
    /// Whether a run that begins here may contain the other number: a run from `08` ends at `99`,
    /// one from `8` contains any number without leading zeros.
    fn has_same_width(self, other: Number<'_>) -> bool {
        let is_padded =
            |number: Number<'_>| 1 < number.digits.len() && number.digits.starts_with('0');
        if is_padded(self) { self.digits.len() == other.digits.len() } else { !is_padded(other) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::read_list;
    use super::*;

    #[track_caller]
    fn check(names: &str, in_order: &str, as_set: &str) {
        assert_eq!(fold(names.split(' ')), in_order, "for {names}");
        assert_eq!(fold_set(names.split(' ')), as_set, "for {names}");
    }

    #[test]
    fn names_fold_at_last_number() {
        check("node1 node2 node3 node4", "node[1-4]", "node[1-4]");
        check("node01 node02 node03 node10", "node[01-03,10]", "node[01-03,10]");
        check("node1 node3 node4 login", "node[1,3-4],login", "node[1,3-4],login");
        check("n08 n09 n10 n11", "n[08-11]", "n[08-11]");
        check("n99 n100", "n[99-100]", "n[99-100]");
        check("n099 n100", "n[099-100]", "n[099-100]");
        check("n09 n10 n99 n100", "n[09-10,99-100]", "n[09-10,99-100]");
        check("n98 n99 n100 n101", "n[98-101]", "n[98-101]");
        let long: Vec<String> = (8..=101).map(|number| format!("n{number:02}")).collect();
        assert_eq!(fold_set(long.iter().map(String::as_str)), "n[08-99,100-101]");
        check("a1 a01 a001", "a[1,01,001]", "a[1,01,001]");
        check("r1n1-ib r1n2-ib r2n1-ib", "r1n[1-2]-ib,r2n1-ib", "r1n[1-2]-ib,r2n1-ib");
        check("b2 a1 b1", "b2,a1,b1", "b[1-2],a1");
        check("n3 n1 n2 n1", "n[3,1-2,1]", "n[1-3]");
        check("10.0.0.1 10.0.0.2", "10.0.0.1,10.0.0.2", "10.0.0.1,10.0.0.2");
        check("login login", "login,login", "login");
        check("x9999999999999999999 x1", "x9999999999999999999,x1", "x9999999999999999999,x1");
        assert_eq!(fold([]), "");
        assert_eq!(fold_without_suffix(["n1", "n2", "n1-ib", "n2-ib"]), "n[1-2],n1-ib,n2-ib");
    }

    #[test]
    fn siblings_differ_in_last_number() {
        let names = ["n1", "r1n1", "n2", "n3-ib", "login"];
        assert_eq!(siblings("n9", names).collect::<Vec<_>>(), ["n1", "n2"]);
        assert_eq!(siblings("r1n9", names).collect::<Vec<_>>(), ["r1n1"]);
        assert_eq!(siblings("login", names).count(), 0);
    }

    fn names() -> impl Strategy<Value = Vec<String>> {
        let name = ("[a-c]{0,1}[0-9]{0,3}[a-c]", "[0-9]{0,3}", "(-ib)?");
        proptest::collection::vec(
            name.prop_map(|(prefix, number, suffix)| prefix + &number + &suffix),
            1..30,
        )
    }

    fn expand(list: &str) -> Vec<String> {
        let patterns = read_list(list, 0).expect("a folded list is valid");
        patterns
            .iter()
            .flat_map(|(pattern, _)| pattern.hosts())
            .map(|host| host.to_string())
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn folded_list_expands_to_same_names_in_order(names in names()) {
            let list = fold(names.iter().map(String::as_str));
            prop_assert_eq!(expand(&list), names.clone());
            prop_assert_eq!(expand(&fold_without_suffix(names.iter().map(String::as_str))), names);
        }

        #[test]
        fn folded_set_has_each_name_once(names in names()) {
            let mut found = expand(&fold_set(names.iter().map(String::as_str)));
            let mut expect = names;
            found.sort();
            expect.sort();
            expect.dedup();
            prop_assert_eq!(found, expect);
        }

        #[test]
        fn printed_list_parses_to_same_patterns(names in names(), step in 1u64..4, last in 1u64..30) {
            let list = fold(names.iter().map(String::as_str)) + &format!(",s[1-{last}/{step}]x[01-09]");
            let read = read_list(&list, 0).expect("a folded list is valid");
            for (pattern, _) in read {
                let again = read_list(&pattern.to_string(), 0).expect("a printed list is valid");
                prop_assert_eq!(&again[0].0, &pattern);
                prop_assert_eq!(pattern.hosts().count() as u64, pattern.count());
            }
        }
    }
}
