//! Runs the commands in the READMEs of the examples against a real server and worker, and compares their output.
//!
//! `transcript.txt` has each command after a `$`, and below it its standard output and the last line of its standard error; earlier lines
//! of standard error depend on timing. `…` stands for any text within a line.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::docker;

use crate::stub::{longshore, run};

#[test]
fn the_scripts_example_works_without_containers() {
    Example::copy("scripts").without_containers().run(&["--no-docker"]);
}

#[test]
fn the_hooks_example_works_without_containers() {
    Example::copy("hooks").without_containers().run(&[]);
}

#[test]
fn the_schedules_example_works_without_waiting_for_the_clock() {
    if docker::is_required() {
        Example::copy("schedules").run(&[]);
    }
}

#[test]
fn the_reports_example_works_in_a_locked_down_container() {
    if docker::is_required() {
        Example::copy("reports").run(&[]);
    }
}

#[test]
fn backups() {
    if docker::is_required() {
        // Other tests may use these names on the shared engine.
        Example::copy("backup").rename_volumes(&["data", "backups"]).run(&["--allow-volume", "*"]);
    }
}

/// An example in its own directory, below the path that its README uses.
struct Example {
    readme: String,
    transcript: String,
    jobs_file: PathBuf,
    /// The label of all containers and images that it creates.
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

    /// Starts the processes of the README, runs its commands, and compares their output.
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
            let said = run(&mut self.command(command, &dev.url));
            let last = said.err.lines().next_back().map(|line| format!("{line}\n"));
            printed += &format!("$ {command}\n{}{}", said.out, last.unwrap_or_default());
        }
        let (expected, printed): (Vec<&str>, Vec<&str>) =
            (self.transcript.lines().collect(), printed.lines().collect());
        let fits =
            expected.len() == printed.len() && expected.iter().zip(&printed).all(|(it, line)| fits(it, line));
        assert!(fits, "expected:\n{}\nprinted:\n{}", expected.join("\n"), printed.join("\n"));
    }

    /// Runs one command of the README with the environment of a worker.
    fn command(&self, line: &str, server: &str) -> Command {
        let words: Vec<&str> = words(line).into_iter().skip(1).collect();
        let mut command = longshore(&words);
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
        // Left over from a failed test.
        let filter = format!("label=example-of-test={}", self.mark);
        for id in lines(&["ps", "--all", "--quiet", "--filter", &filter]) {
            lines(&["rm", "--force", "--volumes", "--", &id]);
        }
        for volume in &self.volumes {
            lines(&["volume", "rm", "--", volume]);
        }
    }
}

/// `longshore dev` on a free port.
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
        // Later log lines must not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url }
    }
}

impl Drop for Dev {
    /// Stops it with SIGINT; its worker removes the ended containers.
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = self.process.wait();
    }
}

/// The words of a command, of which some stand between double quotes.
fn words(line: &str) -> Vec<&str> {
    let parts = line.split('"').enumerate();
    let words = parts.map(
        |(number, part)| {
            if number % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }
        },
    );
    words.flatten().collect()
}

/// Compares a line with the expected one, in which each `…` stands for any text.
fn fits(expected: &str, line: &str) -> bool {
    let Some((head, rest)) = expected.split_once('…') else { return expected == line };
    let Some(line) = line.strip_prefix(head) else { return false };
    line.char_indices().map(|(at, _)| at).chain([line.len()]).any(|at| fits(rest, &line[at..]))
}

/// The output of `docker`.
fn lines(words: &[&str]) -> Vec<String> {
    let printed = Command::new("docker").args(words).stderr(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&printed.stdout).lines().map(str::to_owned).collect()
}
