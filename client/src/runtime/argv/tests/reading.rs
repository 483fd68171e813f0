//! A model of how `docker` parses arguments: options before the image, nothing behind it. It follows Docker's help and the rules of pflag,
//! so that a command line can be checked without the program.

/// The parsed arguments of `docker run`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// Names and values, sorted; a switch has the value `true`.
    pub(super) options: Vec<(String, String)>,
    pub(super) image: String,
    pub(super) words: Vec<String>,
}

impl Read {
    /// Parses the arguments after `docker`; `Err` with the argument that Docker would refuse.
    pub(super) fn of(args: &[String]) -> Result<Self, String> {
        let mut read = Self::default();
        let mut args = args.iter().skip_while(|it| *it == "run").cloned();
        while let Some(arg) = args.next() {
            if arg == "--" {
                read.image = args.next().ok_or("no image")?;
                break;
            }
            if !arg.starts_with('-') || arg == "-" {
                read.image = arg;
                break;
            }
            // No short option is ever meant.
            let option = arg.strip_prefix("--").ok_or_else(|| arg.clone())?;
            let (name, given) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            let value = match given {
                Some(value) => value,
                None if SWITCHES.contains(&name) => "true".into(),
                None => args.next().ok_or_else(|| arg.clone())?,
            };
            if !SWITCHES.contains(&name) && !OPTIONS.contains(&name) {
                return Err(arg);
            }
            read.options.push((name.into(), value));
        }
        read.options.sort();
        read.words.extend(args);
        Ok(read)
    }
}

/// Parses an environment file: the last value of each name, sorted; `Err` with a line that imports a variable of the worker or is invalid.
pub(super) fn environment(file: &[u8]) -> Result<Vec<(String, String)>, String> {
    let mut variables: Vec<(String, String)> = Vec::new();
    let text = String::from_utf8(file.to_vec()).map_err(|error| error.to_string())?;
    for line in text.split_terminator('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line).trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(line)?;
        if name.is_empty() || name.contains(char::is_whitespace) || line.len() > 64 << 10 {
            return Err(line.into());
        }
        variables.retain(|(known, _)| known != name);
        variables.push((name.into(), value.into()));
    }
    variables.sort();
    Ok(variables)
}

/// Parses a `--mount`: the fields of its first line of CSV.
pub(super) fn mount(value: &str) -> Result<Vec<(String, String)>, String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = value.chars().peekable();
    while let Some(it) = chars.next() {
        let field = fields.last_mut().ok_or("no field")?;
        match it {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            '"' => return Err(format!("a bare quote in {value:?}")),
            ',' if !quoted => fields.push(String::new()),
            '\n' if !quoted => break,
            it => field.push(it),
        }
    }
    let pair = |field: String| match field.split_once('=') {
        Some((key, value)) => (key.to_lowercase(), value.to_owned()),
        None => (field, String::new()),
    };
    if quoted {
        Err(format!("an open quote in {value:?}"))
    } else {
        Ok(fields.into_iter().map(pair).collect())
    }
}

const SWITCHES: [&str; 13] = [
    "detach",
    "help",
    "init",
    "interactive",
    "no-healthcheck",
    "oom-kill-disable",
    "privileged",
    "publish-all",
    "quiet",
    "read-only",
    "rm",
    "sig-proxy",
    "tty",
];

const OPTIONS: [&str; 81] = [
    "add-host",
    "annotation",
    "attach",
    "blkio-weight",
    "blkio-weight-device",
    "cap-add",
    "cap-drop",
    "cgroup-parent",
    "cgroupns",
    "cidfile",
    "cpu-period",
    "cpu-quota",
    "cpu-rt-period",
    "cpu-rt-runtime",
    "cpu-shares",
    "cpus",
    "cpuset-cpus",
    "cpuset-mems",
    "detach-keys",
    "device",
    "device-cgroup-rule",
    "device-read-bps",
    "device-read-iops",
    "device-write-bps",
    "device-write-iops",
    "dns",
    "dns-option",
    "dns-search",
    "domainname",
    "entrypoint",
    "env",
    "env-file",
    "expose",
    "gpus",
    "group-add",
    "health-cmd",
    "hostname",
    "ip",
    "ip6",
    "ipc",
    "isolation",
    "kernel-memory",
    "label",
    "label-file",
    "link",
    "link-local-ip",
    "log-driver",
    "log-opt",
    "mac-address",
    "memory",
    "memory-reservation",
    "memory-swap",
    "memory-swappiness",
    "mount",
    "name",
    "network",
    "network-alias",
    "oom-score-adj",
    "pid",
    "pids-limit",
    "platform",
    "publish",
    "pull",
    "restart",
    "runtime",
    "security-opt",
    "shm-size",
    "stop-signal",
    "stop-timeout",
    "storage-opt",
    "sysctl",
    "tmpfs",
    "ulimit",
    "use-api-socket",
    "user",
    "userns",
    "uts",
    "volume",
    "volume-driver",
    "volumes-from",
    "workdir",
];
