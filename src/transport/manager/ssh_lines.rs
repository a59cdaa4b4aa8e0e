//! The hosts that ssh has not reached, by what it prints when a process manager starts it. Pure.

/// Returns the names of the hosts that ssh has not reached, if this line says so.
pub(super) fn unreached_hosts(line: &str) -> Vec<String> {
    unreached_host(line).into_iter().map(str::to_owned).collect()
}

/// The host in a message of ssh: `ssh: connect to host n2 port 22: Connection refused`,
/// `ssh: Could not resolve hostname n2: Name or service not known`, `a@n2: Permission denied (publickey).`
fn unreached_host(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("ssh: connect to host ") {
        return rest.split_once(" port ").map(|(host, _)| host);
    }
    if let Some(rest) = line.strip_prefix("ssh: Could not resolve hostname ") {
        return rest.rsplit_once(": ").map(|(host, _)| host);
    }
    let (login, _) = line.split_once(": Permission denied (")?;
    let is_word = !login.is_empty() && !login.contains(char::is_whitespace);
    is_word.then(|| login.rsplit_once('@').map_or(login, |(_, host)| host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_names_the_host_that_it_has_not_reached() {
        #[track_caller]
        fn check(line: &str, expected: Option<&str>) {
            assert_eq!(unreached_host(line), expected);
        }
        check("ssh: connect to host 127.0.0.2 port 22: Connection refused", Some("127.0.0.2"));
        check("ssh: connect to host n2 port 2222: No route to host\r", Some("n2"));
        check("ssh: Could not resolve hostname n2: Name or service not known", Some("n2"));
        check("ada@n2: Permission denied (publickey,password).", Some("n2"));
        check("n2: Permission denied (publickey).", Some("n2"));
        check("Host key verification failed.", None);
        check("ORTE was unable to reliably start one or more daemons.", None);
        check("open /etc/x y: Permission denied (13)", None);
    }
}
