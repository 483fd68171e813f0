//! Finds the process that listens on a port, for an error message.

use std::fs;

/// The id of the process that listens on a TCP port of this machine, if `/proc` shows it.
pub(super) fn listening_pid(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let socket = tables.iter().find_map(|table| listening_socket(&fs::read_to_string(table).ok()?, port))?;
    let name = format!("socket:[{socket}]");
    let has_it = |pid: u32| {
        let handles = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        handles
            .filter_map(|handle| fs::read_link(handle.path()).ok())
            .any(|target| target.as_os_str() == name.as_str())
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).find(|pid| has_it(*pid))
}

/// The inode of the socket that listens on this port, from a table of the kernel.
fn listening_socket(table: &str, port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let (_, local_port) = columns.next()?.rsplit_once(':')?;
        let state = columns.nth(1)?;
        let inode = columns.nth(5)?.parse().ok()?;
        let found = state == LISTENS && u16::from_str_radix(local_port, 16).ok()? == port;
        found.then_some(inode)
    })
}

/// The kernel's number for the state (`TCP_LISTEN` in `include/net/tcp_states.h`).
const LISTENS: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_found_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 111 1 0 20 4 30 10 -1\n\
            1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0 0 10 0\n";
        assert_eq!(listening_socket(table, 8080), Some(222));
        assert_eq!(listening_socket(table, 8081), None);
    }

    #[test]
    fn the_own_process_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listening_pid(listener.local_addr().unwrap().port()), Some(std::process::id()));
    }
}
