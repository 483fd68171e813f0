//! The examples do what they show: each one's commands, as its README has them, against a real server and worker, and what they print.
//!
//! `transcript.txt` has each command behind a `$`, and below it its standard output and the last line of its standard error: how far a job
//! is seen to be before that differs from run to run. `…` stands for any text within a line.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its stage fails")]

mod stub;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use chaos::stage::docker;
use stub::said;

#[test]
fn programs_without_containers() {
    Example::copy("scripts").without_containers().run(&["--no-docker"]);
}

#[test]
fn a_locked_down_job() {
    if docker::is_wanted() {
        Example::copy("reports").run(&[]);
    }
}

#[test]
fn backups() {
    if docker::is_wanted() {
        // Of the engine that tests share, these names may be somebody's.
        Example::copy("backup").rename_volumes(&["data", "backups"]).run(&[]);
    }
}

/// An example in a directory of its own, under the path that its README calls it by.
struct Example {
    readme: String,
    transcript: String,
    jobs_file: PathBuf,
    /// The mark of all that it makes on the engine.
    mark: String,
    volumes: Vec<String>,
    has_containers: bool,
    directory: tempfile::TempDir,
}

impl Example {
    fn copy(name: &str) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("examples").join(name);
        std::fs::create_dir_all(&copy).unwrap();
        for entry in std::fs::read_dir(&source).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        let read = |file: &str| std::fs::read_to_string(source.join(file)).unwrap();
        let example = Self {
            readme: read("README.md"),
            transcript: read("transcript.txt"),
            jobs_file: copy.join("jobs.yaml"),
            mark: format!("longshore-example-{name}-{:016x}", rand::random::<u64>()),
            volumes: Vec::new(),
            has_containers: true,
            directory,
        };
        let label = format!("defaults:\n  labels: {{ example-of-test: {} }}\n", example.mark);
        example.edit("defaults:\n", &label)
    }

    const fn without_containers(mut self) -> Self {
        self.has_containers = false;
        self
    }

    fn rename_volumes(mut self, names: &[&str]) -> Self {
        for name in names {
            let own = format!("{}-{name}", self.mark);
            self = self.edit(&format!("- {name}:/"), &format!("- {own}:/"));
            self.volumes.push(own);
        }
        self
    }

    fn edit(self, from: &str, to: &str) -> Self {
        let text = std::fs::read_to_string(&self.jobs_file).unwrap();
        std::fs::write(&self.jobs_file, text.replace(from, to)).unwrap();
        self
    }

    /// Starts what its README starts, gives the commands that its README gives, and compares what they print.
    fn run(self, more: &[&str]) {
        let (background, commands): (Vec<&str>, Vec<&str>) = self
            .readme
            .lines()
            .filter(|line| line.starts_with("longshore "))
            .partition(|it| it.ends_with('&'));
        let [dev] = background[..] else { panic!("one command of the README goes on in the background") };
        let dev = Dev::start(self.command(dev.trim_end_matches(" &"), "").args(more));
        let shown: Vec<&str> = self.transcript.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
        assert_eq!(shown, commands, "the transcript is of the README's commands");

        let mut printed = String::new();
        for command in commands {
            let said = said(&mut self.command(command, &dev.url));
            let last = said.err.lines().next_back().map(|line| format!("{line}\n"));
            printed += &format!("$ {command}\n{}{}", said.out, last.unwrap_or_default());
        }
        let (expected, printed): (Vec<&str>, Vec<&str>) =
            (self.transcript.lines().collect(), printed.lines().collect());
        let fits =
            expected.len() == printed.len() && expected.iter().zip(&printed).all(|(it, line)| fits(it, line));
        assert!(fits, "expected:\n{}\nprinted:\n{}", expected.join("\n"), printed.join("\n"));
    }

    /// One of its README's commands, in the environment that a worker needs.
    fn command(&self, line: &str, server: &str) -> Command {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let mut command = stub::longshore(&words);
        command.current_dir(self.directory.path()).env("LONGSHORE_SERVER", server);
        let passed_on = ["PATH", "HOME", "DOCKER_HOST"].map(|name| (name, std::env::var_os(name)));
        command.envs(passed_on.into_iter().filter_map(|(name, value)| Some((name, value?))));
        command
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        if !self.has_containers {
            return;
        }
        // Only what a test that failed has left.
        let filter = format!("label=example-of-test={}", self.mark);
        for id in lines(&["ps", "--all", "--quiet", "--filter", &filter]) {
            lines(&["rm", "--force", "--volumes", "--", &id]);
        }
        for volume in &self.volumes {
            lines(&["volume", "rm", "--", volume]);
        }
    }
}

/// `longshore dev`, on a free port.
struct Dev {
    process: Child,
    url: String,
}

impl Dev {
    fn start(command: &mut Command) -> Self {
        let command = command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| Some(line.split_once("listening on ")?.1.to_owned())).unwrap();
        // What is logged from here on must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url }
    }
}

impl Drop for Dev {
    /// As Ctrl-C would have it: its worker removes the containers that have ended.
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = self.process.wait();
    }
}

/// Whether a line is what is expected, in which `…` stands for any text.
fn fits(expected: &str, line: &str) -> bool {
    match expected.split_once('…') {
        None => expected == line,
        Some((head, tail)) => {
            line.len() >= head.len() + tail.len() && line.starts_with(head) && line.ends_with(tail)
        }
    }
}

/// What `docker` prints.
fn lines(words: &[&str]) -> Vec<String> {
    let printed = Command::new("docker").args(words).stderr(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&printed.stdout).lines().map(str::to_owned).collect()
}
