//! A directory of jobs files is read as one set. The directories are in `jobs_files/directories`, each with the expected output beside it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use longshore_server::catalogue::Definitions;
use longshore_server::config::jobs_file::{
    Environment, FILE_BYTES_MAX, FILES_MAX, FaultCode, Faults, JobsText, LoadedFile, NamedText, load, parse,
    parse_text, read_text,
};
use tempfile::TempDir;

use crate::support::environment;

#[test]
fn every_directory_gets_the_expected_faults() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs_files/directories");
    let entries = fs::read_dir(&root).expect("the directories").map(|entry| entry.expect("an entry").path());
    let mut directories: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    directories.sort();
    assert!(!directories.is_empty());
    for directory in directories {
        let refused = load(&directory, &environment()).and_then(LoadedFile::require_jobs);
        let faults = refused.expect_err(&format!("{} is refused", directory.display()));
        let actual = format!("{faults}\n").replace(&format!("{}/", root.display()), "");
        let expected_file = directory.with_extension("expected");
        if std::env::var_os("LONGSHORE_BLESS").is_some() {
            fs::write(&expected_file, &actual).expect("blessed");
        }
        let expected = fs::read_to_string(&expected_file).unwrap_or_default();
        assert_eq!(actual, expected, "{}", directory.display());
    }
}

/// A directory with these files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        fs::write(directory.path().join(name), text).expect("written");
    }
    directory
}

fn loaded(directory: &TempDir) -> LoadedFile {
    load(directory.path(), &environment()).unwrap_or_else(|faults| panic!("{faults}"))
}

fn refused(directory: &TempDir) -> Faults {
    load(directory.path(), &environment()).expect_err("it is refused")
}

/// Names and files in the order in which they were read.
fn names(loaded: &LoadedFile) -> Vec<(&str, &str)> {
    loaded
        .definitions
        .iter()
        .map(|entry| (entry.definition.name.as_str(), entry.file.as_deref().unwrap_or_default()))
        .collect()
}

#[test]
fn files_are_read_in_the_order_of_their_names_and_others_are_left_out() {
    let job = |name: &str| format!("jobs: {{ {name}: {{ image: busybox }} }}");
    let directory = directory(&[
        ("b.yaml", &job("b1")),
        ("a.yml", "- { name: a2, image: busybox }\n- { name: a1, image: busybox }\n"),
        ("B.yaml", &job("b2")),
        (".hidden.yaml", "jobs: ["),
        ("a.yaml~", "jobs: ["),
        ("README.md", "jobs: ["),
        ("nothing.yaml", "# nothing yet\n"),
    ]);
    let at = |name: &str| directory.path().join(name);
    // A ConfigMap: the file is a link through a directory that is a link, too.
    fs::create_dir(at("..2026_11_28")).expect("made");
    fs::write(at("..2026_11_28/c.yaml"), job("c")).expect("written");
    symlink("..2026_11_28", at("..data")).expect("linked");
    symlink("..data/c.yaml", at("c.yaml")).expect("linked");
    fs::create_dir(at("d.yaml")).expect("made");
    fs::write(at("d.yaml/e.yaml"), job("e")).expect("written");
    let found = loaded(&directory);
    let expected = [("b2", "B.yaml"), ("a2", "a.yml"), ("a1", "a.yml"), ("b1", "b.yaml"), ("c", "c.yaml")];
    assert_eq!(names(&found), expected);
    assert_eq!(found.warnings, [], "one of several files may be empty");
}

#[test]
fn each_file_has_its_own_defaults_and_all_share_hooks_and_groups() {
    let directory = directory(&[
        (
            "a.yaml",
            "defaults: { image: one, timeout: 1m }\njobs:\n  a: { hooks: { on_success: b }, concurrency: { limit: 2, group: g } }\n",
        ),
        ("b.yaml", "defaults: { image: two }\njobs: { b: { concurrency: { limit: 2, group: g } } }\n"),
    ]);
    let found = loaded(&directory);
    let [a, b] = found.definitions.as_slice() else { panic!("{found:?}") };
    assert_eq!((&*a.definition.container.image, &*b.definition.container.image), ("one", "two"));
    assert_ne!(a.definition.timeout, b.definition.timeout);
}

#[test]
fn the_revision_does_not_depend_on_the_split_over_files() {
    let (a, b) = ("  a: { image: busybox, owner: x }\n", "  b: { image: busybox, hooks: { on_end: a } }\n");
    let revision = |loaded: LoadedFile| Definitions::new(loaded.definitions).revision();
    let file = parse(&format!("jobs:\n{a}{b}"), Path::new("jobs.yaml"), &environment()).expect("a file");
    assert_eq!(file.definitions[0].file, None);
    let of = |files: &[(&str, &str)]| revision(loaded(&directory(files)));
    let one = of(&[("z.yaml", &format!("jobs:\n{b}{a}"))]);
    let two = of(&[("z.yaml", &format!("jobs:\n{a}")), ("y.yml", &format!("jobs:\n{b}"))]);
    assert_eq!((one, two), (revision(file), one));
    assert_ne!(of(&[("z.yaml", &format!("jobs:\n{a}"))]), one);
}

#[test]
fn an_environment_file_is_beside_the_file_that_names_it_and_its_faults_are_told() {
    let job = "jobs: { a: { image: busybox, env_file: a.env } }";
    let directory = directory(&[("a.yaml", job), ("a.env", "A=1\n")]);
    assert_eq!(loaded(&directory).definitions[0].definition.container.environment.len(), 1);
    fs::write(directory.path().join("a.env"), "A=1\nB\n").expect("written");
    let faults = refused(&directory);
    assert!(faults.to_string().starts_with("a.env:2:1: invalid_value: "), "{faults}");
}

#[test]
fn a_directory_without_jobs_is_a_warning_at_first_and_a_fault_at_reload() {
    for (files, text) in [
        (&[][..], "the directory has no files *.yaml or *.yml"),
        (&[("a.yaml", "# none"), ("b.yaml", "jobs: {}")][..], "its files define no jobs"),
    ] {
        let directory = directory(files);
        let found = loaded(&directory);
        assert_eq!(found.warnings.first().map(|warning| warning.code), Some(FaultCode::NoJobs));
        let faults = found.require_jobs().expect_err(text);
        assert_eq!(faults.to_string(), format!("{}: no_jobs: {text}", directory.path().display()));
    }
}

/// Its definitions are not to be removed because its writer, or a full disk, has left nothing of it.
#[test]
fn an_emptied_file_is_a_fault_and_so_is_a_directory_in_place_of_a_file() {
    let emptied = directory(&[("a.yaml", "[{name: a, image: busybox}]"), ("b.yaml", "\n")]);
    let faults = refused(&emptied);
    assert!(faults.to_string().contains("/b.yaml: no_jobs: the file is empty"), "{faults}");
    let place = directory(&[]);
    let mounted = place.path().join("jobs.yaml");
    fs::create_dir(&mounted).expect("made");
    let faults = load(&mounted, &environment()).expect_err("no file");
    assert!(faults.to_string().contains("Docker makes one where the file of a mount is missing"), "{faults}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_fault_beside_those_of_the_others() {
    let hooked = "[{name: a, image: busybox, hooks: {on_end: gone}, imgae: x}]";
    let directory = directory(&[("a.yaml", hooked)]);
    symlink("nowhere", directory.path().join("b.yaml")).expect("linked");
    let faults = refused(&directory);
    let codes: Vec<FaultCode> = faults.list.iter().map(|fault| fault.code).collect();
    // The job that the hook names may be in the file that is missing.
    assert_eq!(codes, [FaultCode::UnknownField, FaultCode::CannotRead], "{faults}");
    assert!(faults.to_string().ends_with("/b.yaml: cannot_read: it does not exist"), "{faults}");
}

#[test]
fn a_name_that_cannot_be_shown_and_a_directory_that_is_not_there_are_faults() {
    let directory = directory(&[("a.yaml", "[{name: a, image: busybox}]"), ("b\n.yaml", "[]")]);
    let faults = refused(&directory);
    assert!(
        faults.to_string().ends_with(
            "/b\u{fffd}.yaml: cannot_read: its name has a character that cannot be shown; rename it"
        )
    );
    assert!(read_text(directory.path()).is_err());
    let missing = load(&directory.path().join("missing"), &environment()).expect_err("not there");
    assert!(missing.to_string().ends_with("missing: cannot_read: it does not exist"), "{missing}");
}

#[test]
fn a_directory_that_is_swapped_while_it_is_read_is_not_read_by_halves() {
    let root = directory(&[]);
    let at = |name: &str| root.path().join(name);
    let swap = |version: u32| {
        let new = at(&format!("v{version}"));
        fs::create_dir(&new).expect("made");
        for name in ["a", "b", "c"] {
            // The lengths differ, because an inode may be used again within a tick of the clock.
            let text =
                format!("[{{name: {name}, image: 'x:{version}'}}] #{}", "#".repeat(version as usize % 8));
            fs::write(new.join(name).with_extension("yaml"), text).expect("written");
        }
        symlink(&new, at("next")).expect("linked");
        fs::rename(at("next"), at("current")).expect("swapped");
        if let Some(old) = version.checked_sub(2) {
            fs::remove_dir_all(at(&format!("v{old}"))).expect("removed");
        }
    };
    swap(0);
    std::thread::scope(|scope| {
        let swapping = scope.spawn(|| (1..300).for_each(swap));
        while !swapping.is_finished() {
            match load(&at("current"), &environment()) {
                Ok(found) => {
                    let images = found.definitions.iter().map(|entry| &*entry.definition.container.image);
                    let images: std::collections::BTreeSet<&str> = images.collect();
                    assert_eq!((found.definitions.len(), images.len()), (3, 1), "{images:?}");
                }
                // It changed each time that it was read.
                Err(faults) => {
                    assert!(faults.list.iter().all(|fault| fault.code == FaultCode::CannotRead), "{faults}");
                }
            }
        }
    });
    assert_eq!(load(&at("current"), &environment()).expect("at rest").definitions.len(), 3);
}

#[test]
fn limits_hold_for_all_files_together() {
    let only_code = |faults: Faults| {
        assert_eq!(faults.list.len(), 1, "{faults}");
        faults.list[0].code
    };
    let half = "#".repeat(FILE_BYTES_MAX / 2);
    let job = "[{name: a, image: busybox}]\n";
    let files = [("a.yaml", &*half), ("b.yaml", &half[job.len()..]), ("c.yaml", job)];
    let in_limit = directory(&files);
    assert_eq!(loaded(&in_limit).definitions.len(), 1);
    fs::write(in_limit.path().join("d.yaml"), "#").expect("written");
    assert_eq!(only_code(refused(&in_limit)), FaultCode::FileTooLarge);

    let many = directory(&[]);
    let add = |number: usize| fs::write(many.path().join(format!("{number}.yaml")), "#").expect("written");
    (0..FILES_MAX).for_each(add);
    assert!(load(many.path(), &environment()).is_ok());
    add(FILES_MAX);
    assert_eq!(only_code(refused(&many)), FaultCode::TooLong);

    // Aliases, too: each of these files alone would be read.
    let copies = format!("x-a: &a [{}]\nx-b: [*a, *a, *a]\n", "1, ".repeat(20_000));
    let files: Vec<NamedText> = ["a.yaml", "b.yaml", "c.yaml"]
        .map(|name| NamedText { name: name.to_owned(), text: format!("{copies}jobs: {{}}\n") })
        .into();
    let read = |files: &[NamedText]| {
        let text = JobsText::of_files(files.to_vec()).expect("good names");
        parse_text(text, Path::new("jobs.d"), &Environment::default())
    };
    assert!(read(&files[..2]).is_ok());
    assert!(read(&files).expect_err("too many").list.iter().all(|fault| fault.code == FaultCode::YamlBudget));
}

#[test]
fn names_of_files_that_are_sent_are_those_that_a_directory_could_have() {
    let of = |names: &[&str]| {
        let file = |name: &&str| NamedText { name: (*name).to_owned(), text: String::new() };
        JobsText::of_files(names.iter().map(file).collect())
    };
    let sorted = of(&["b.yaml", "a.yml"]).expect("good names");
    assert_eq!(sorted, of(&["a.yml", "b.yaml"]).expect("good names"));
    for name in ["a.yaml", "a", "a.txt", ".a.yaml", "../a.yaml", "b/a.yaml", "a\n.yaml", "", ".yaml"] {
        let wrong = of(&["a.yaml", name]).expect_err(name);
        assert_eq!(wrong.file, Some(1), "{wrong:?}");
    }
    let many: Vec<String> = (0..=FILES_MAX).map(|number| format!("{number}.yaml")).collect();
    assert_eq!(of(&many.iter().map(String::as_str).collect::<Vec<_>>()).expect_err("too many").file, None);
}
