//! Asks the engine what containers use: `docker system dial-stdio` connects to its API, wherever it is, and one request for each container
//! follows the other on this connection. `docker stats` gives no totals of CPU time, and takes two seconds.

use protocol::{Token, Usage, UsageSample};
use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::cli::{CallError, Cli};

/// Asks for each of these containers, and passes on what the engine answers. Unknown containers are left out.
///
/// # Errors
/// The program cannot connect, or the engine's answer is not understood.
pub(super) async fn ask(
    cli: &Cli,
    containers: &[(Token, String)],
    mut on_sample: impl FnMut(UsageSample),
) -> Result<(), CallError> {
    let mut child = cli.spawn_with_input(["system", "dial-stdio"])?;
    let (Some(mut requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
        return Ok(());
    };
    drop(child.stderr.take());
    let mut answers = BufReader::new(answers);
    for (token, id) in containers {
        let request =
            format!("GET /containers/{id}/stats?stream=false&one-shot=true HTTP/1.1\r\nHost: docker\r\n\r\n");
        requests.write_all(request.as_bytes()).await.map_err(closed)?;
        let answer = read_answer(&mut answers).await.map_err(closed)?;
        if let Some(stats) = answer.filter(|it| it.is_success).and_then(|it| Stats::read(&it.body)) {
            on_sample(stats.sample(*token));
        }
    }
    Ok(())
}

fn closed(error: std::io::Error) -> CallError {
    CallError::Unreachable(format!("the engine's answer ends early: {error}"))
}

struct Answer {
    is_success: bool,
    body: Vec<u8>,
}

/// Reads one HTTP answer; `None` if the connection was closed before it.
async fn read_answer(from: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<Answer>> {
    let Some(status) = read_line(from).await? else { return Ok(None) };
    let is_success = status.split(' ').nth(1) == Some("200");
    let (mut length, mut is_chunked) = (0, false);
    for _ in 0..HEADERS_MAX {
        let line = read_line(from).await?.unwrap_or_default();
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(BODY_BYTES_MAX),
            "transfer-encoding" => is_chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if !is_chunked {
        append(from, &mut body, length).await?;
        return Ok(Some(Answer { is_success, body }));
    }
    loop {
        let size = read_line(from).await?.unwrap_or_default();
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
        let size = size.map_err(|_| std::io::Error::other("a chunk without a length"))?;
        append(from, &mut body, size).await?;
        read_line(from).await?;
        if size == 0 {
            return Ok(Some(Answer { is_success, body }));
        }
    }
}

async fn append(
    from: &mut (impl AsyncBufRead + Unpin),
    body: &mut Vec<u8>,
    bytes: usize,
) -> std::io::Result<()> {
    let begin = body.len();
    if bytes > BODY_BYTES_MAX - begin {
        return Err(std::io::Error::other("it is too long"));
    }
    body.resize(begin + bytes, 0);
    from.read_exact(&mut body[begin..]).await.map(drop)
}

/// A line without its end; `None` at the end of the connection.
async fn read_line(from: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
}

/// The part of the engine's figures that counts here. Absent or null lists are empty.
#[derive(Debug, Deserialize)]
struct Stats {
    #[serde(default)]
    cpu_stats: CpuStats,
    #[serde(default)]
    memory_stats: MemoryStats,
    #[serde(default)]
    blkio_stats: DiskStats,
    /// Absent if the container uses the network of the machine, or none.
    networks: Option<std::collections::BTreeMap<String, NetworkStats>>,
}

#[derive(Debug, Default, Deserialize)]
struct CpuStats {
    #[serde(default)]
    cpu_usage: CpuUsage,
}

#[derive(Debug, Default, Deserialize)]
struct CpuUsage {
    /// CPU time in nanoseconds.
    #[serde(default)]
    total_usage: u64,
}

#[derive(Debug, Default, Deserialize)]
struct MemoryStats {
    usage: Option<u64>,
    max_usage: Option<u64>,
    #[serde(default)]
    stats: CacheStats,
}

#[derive(Debug, Default, Deserialize)]
struct CacheStats {
    total_inactive_file: Option<u64>,
    inactive_file: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct DiskStats {
    io_service_bytes_recursive: Option<Vec<DiskEntry>>,
}

#[derive(Debug, Deserialize)]
struct DiskEntry {
    op: String,
    value: u64,
}

#[derive(Debug, Deserialize)]
struct NetworkStats {
    rx_bytes: u64,
    tx_bytes: u64,
}

impl Stats {
    /// `None` if the container does not run: the engine answers with zeros then.
    fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(body).ok().filter(|it| it.cpu_stats.cpu_usage.total_usage > 0)
    }

    fn sample(&self, token: Token) -> UsageSample {
        let MemoryStats { usage: now, max_usage, stats } = &self.memory_stats;
        let cache = stats.total_inactive_file.or(stats.inactive_file).unwrap_or(0);
        let disk = self.blkio_stats.io_service_bytes_recursive.as_ref();
        let disk = |operation: &str| {
            let entries = disk?.iter().filter(|entry| entry.op.eq_ignore_ascii_case(operation));
            Some(entries.map(|entry| entry.value).fold(0, u64::saturating_add))
        };
        let network = |bytes: fn(&NetworkStats) -> u64| {
            self.networks.as_ref().map(|all| all.values().map(bytes).fold(0, u64::saturating_add))
        };
        let usage = Usage {
            cpu_ms: Some(self.cpu_stats.cpu_usage.total_usage / 1_000_000),
            // With version 2 of control groups the engine tells no peak; the largest sample takes its place.
            memory_peak_bytes: max_usage.or(*now),
            network_received_bytes: network(|it| it.rx_bytes),
            network_sent_bytes: network(|it| it.tx_bytes),
            disk_read_bytes: disk("read"),
            disk_written_bytes: disk("write"),
        };
        UsageSample { token, usage: usage.clamped(), memory_bytes: now.map(|it| it.saturating_sub(cache)) }
    }
}

const HEADERS_MAX: usize = 100;
const LINE_BYTES_MAX: u64 = 8 << 10;
/// The figures of a container take 2 KB, and a little more for each core and disk.
const BODY_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = r#"{"blkio_stats":{"io_service_bytes_recursive":[{"major":8,"minor":0,"op":"Read","value":4096},{"major":8,"minor":0,"op":"Write","value":7}]},
        "cpu_stats":{"cpu_usage":{"total_usage":260877584}},"memory_stats":{"usage":2027520,"max_usage":4337664,"stats":{"total_inactive_file":27520}},
        "networks":{"eth0":{"rx_bytes":486,"tx_bytes":0},"eth1":{"rx_bytes":4,"tx_bytes":2}}}"#;

    const VERSION_2: &str = r#"{"blkio_stats":{"io_service_bytes_recursive":null},"cpu_stats":{"cpu_usage":{"total_usage":5000000}},
        "memory_stats":{"usage":2000000,"stats":{"inactive_file":500000}}}"#;

    fn sample(json: &str) -> UsageSample {
        Stats::read(json.as_bytes()).expect("understood").sample(Token::default())
    }

    #[test]
    fn figures_of_both_versions_are_read() {
        let usage = Usage {
            cpu_ms: Some(260),
            memory_peak_bytes: Some(4_337_664),
            network_received_bytes: Some(490),
            network_sent_bytes: Some(2),
            disk_read_bytes: Some(4_096),
            disk_written_bytes: Some(7),
        };
        assert_eq!((sample(VERSION_1).usage, sample(VERSION_1).memory_bytes), (usage, Some(2_000_000)));
        let usage = Usage { cpu_ms: Some(5), memory_peak_bytes: Some(2_000_000), ..Usage::default() };
        assert_eq!((sample(VERSION_2).usage, sample(VERSION_2).memory_bytes), (usage, Some(1_500_000)));
    }

    #[test]
    fn a_container_that_does_not_run_has_no_figures() {
        for body in [
            "",
            "{}",
            "[]",
            r#"{"cpu_stats":{"cpu_usage":{"total_usage":0}}}"#,
            r#"{"cpu_stats":{"cpu_usage":{"total_usage":-1}}}"#,
        ] {
            assert!(Stats::read(body.as_bytes()).is_none(), "{body}");
        }
    }

    #[tokio::test]
    async fn answers_with_a_length_and_in_chunks_follow_each_other() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n\
                    3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let mut bytes = text.as_bytes();
        let mut answers = Vec::new();
        while let Some(answer) = read_answer(&mut bytes).await.expect("understood") {
            answers.push((answer.is_success, String::from_utf8(answer.body).expect("text")));
        }
        assert_eq!(answers, [(true, "{}".into()), (false, "abcde".into()), (true, String::new())]);
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_or_torn_is_an_error() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}",
        ] {
            assert!(read_answer(&mut text.as_bytes()).await.is_err(), "{text}");
        }
    }

    /// Answers requests on its input as an engine does on such a connection, and ends with it.
    const ENGINE: &str = r#"#!/bin/sh
[ "$*" = 'system dial-stdio' ] || exit 1
while read -r verb path rest; do
  [ "$verb" = GET ] || continue
  case $path in
    /containers/aaa/stats*) body='{"cpu_stats":{"cpu_usage":{"total_usage":5000000}}}'; status='200 OK';;
    *) body='{"message":"No such container"}'; status='404 Not Found';;
  esac
  printf 'HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s' "$status" "${#body}" "$body"
done
"#;

    /// Writes a program by a child process: one that this process has open for writing cannot be run.
    fn program(directory: &std::path::Path, script: &str) -> std::path::PathBuf {
        let path = directory.join("docker");
        let write = ["-c", "printf %s \"$1\" >\"$0\" && chmod +x \"$0\""];
        let written = std::process::Command::new("sh").args(write).arg(&path).arg(script).status();
        assert!(written.expect("sh runs").success());
        path
    }

    #[tokio::test]
    async fn each_container_is_asked_for_on_one_connection_and_unknown_ones_are_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let cli = Cli::new(&program(directory.path(), ENGINE));
        let token = |job| Token { job: protocol::JobId(job), ..Token::default() };
        let containers = [(token(1), "aaa".into()), (token(2), "bbb".into()), (token(3), "aaa".into())];
        let mut samples = Vec::new();
        ask(&cli, &containers, |sample| samples.push(sample)).await.expect("answered");
        let told: Vec<_> = samples.iter().map(|it| (it.token, it.usage.cpu_ms)).collect();
        assert_eq!(told, [(token(1), Some(5)), (token(3), Some(5))]);
    }

    #[tokio::test]
    async fn a_program_without_such_a_call_is_an_error_or_tells_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        for script in [
            "#!/bin/sh\nexit 1\n",
            "#!/bin/sh\nread -r line\nprintf 'HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\n{}'\n",
        ] {
            let cli = Cli::new(&program(directory.path(), script));
            // The first one may have ended before the request is written, or after it.
            let _ = ask(&cli, &[(Token::default(), "aaa".into())], |sample| panic!("{sample:?}")).await;
        }
    }
}
