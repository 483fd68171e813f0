//! The clean-up of images: the order in which they go, and those that stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_client::runtime::Runtime as _;
use longshore_client::runtime::docker::Config;
use longshore_client::runtime::docker::image_gc::ImageGcSettings;
use protocol::ContainerSpec;
use protocol::container::PullPolicy;
use worker::image_gc::{DiskUse, MIN_AGE, Watermarks};
use worker::input::RuntimeEvent;

use crate::support::{DockerFixture, IMAGE, docker, spec, stand_in};

/// Looks often, and takes images of any age. The use of the disk is in a file of the engine's data directory.
fn quick(high: u8, low: u8) -> ImageGcSettings {
    ImageGcSettings {
        min_age: Duration::ZERO,
        look_every: Duration::from_millis(10),
        measure: |root| {
            let looks = root.join("looks");
            let seen: u32 = fs::read_to_string(&looks).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
            fs::write(looks, (seen + 1).to_string()).ok()?;
            let used = fs::read_to_string(root.join("disk")).ok()?.trim().parse().ok()?;
            Some(DiskUse { used, usable: 100 })
        },
        ..ImageGcSettings::new(Watermarks::new(high, low).expect("watermarks"))
    }
}

/// An engine without containers. An image of the name X has the id `sha256:0-X`, the tag `X:latest` and a tenth of the disk.
fn engine(dir: &Path, image_gc: Option<ImageGcSettings>) -> Config {
    fs::create_dir_all(dir.join("images")).expect("made");
    let script = format!(
        r#"cd {0}
        case "$1 $2" in
            "version "*) echo 1;;
            "events "*) exec sleep 600;;
            "info "*) case $3 in *RootDir*) pwd;; *) exit 1;; esac;;
            "ps "*)
                [ -e unlisted ] && {{ echo no >&2; exit 1; }}
                [ "$4" = --filter ] || [ ! -e containers ] || cat containers;;
            "inspect "*)
                case $5 in
                    '{{{{.Id}}}} {{{{.Image}}}}') shift 6; for it in "$@"; do cat "container-$it"; done;;
                    *) echo "Error: No such container: $7" >&2; exit 1;;
                esac;;
            "image inspect")
                format=$4; shift 5; code=0
                for it in "$@"; do
                    [ ! -e "alias-$it" ] || it=$(cat "alias-$it")
                    file=images/sha256:0-${{it#sha256:0-}}
                    if [ ! -e "$file" ]; then echo "Error: No such image: $it" >&2; code=1
                    elif [ "$format" = '{{{{.Id}}}}' ]; then echo "sha256:0-$it"
                    else cat "$file"
                    fi
                done
                exit $code;;
            "image rm")
                shift 4; echo "$*" >> removed
                for it in "$@"; do
                    if [ "$it" = sha256:0-refused ]; then
                        echo "Error response from daemon: conflict: unable to delete $it" >&2; exit 1
                    fi
                    echo "Untagged: $it"
                    if [ -e "images/$it" ]; then rm "images/$it"; echo $(($(cat disk) - 10)) > disk; fi
                done;;
            "image tag") shift 3; echo "$*" >> tagged;;
            "pull "*)
                name=$3
                [ ! -e "alias-$name" ] || exit 0
                printf '{{"id":"sha256:0-%s","tags":["%s:latest"],"size":10}}\n' "$name" "$name" > "images/sha256:0-$name";;
            "run "*) exit 125;;
        esac"#,
        dir.display()
    );
    Config { program: stand_in(dir, &script), image_gc, ..Config::default() }
}

fn of_image(image: &str) -> ContainerSpec {
    ContainerSpec { image: image.into(), ..spec(&["true"]) }
}

/// Runs a job with each image, so that this worker has pulled them in this order.
async fn pull(fixture: &mut DockerFixture, images: &[&str]) {
    for (job, image) in (1..).zip(images) {
        let token = fixture.start(job, of_image(image));
        fixture.outcome(token).await;
        fixture.docker().forget(token);
    }
    fixture.docker().wait_for_removals().await;
}

fn removed(dir: &Path) -> Vec<String> {
    fs::read_to_string(dir.join("removed")).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits until this condition holds and the disk was looked at three times since.
async fn settled(fixture: &DockerFixture, dir: &Path, what: &str, condition: impl FnMut() -> bool) {
    let looks =
        || fs::read_to_string(dir.join("looks")).ok().and_then(|it| it.parse::<u32>().ok()).unwrap_or(0);
    fixture.until(what, condition).await;
    let before = looks();
    fixture.until("three more looks", || looks() >= before + 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pulled_images_are_removed_in_the_order_of_their_use_until_there_is_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(engine(dir.path(), None));
    pull(&mut fixture, &["a", "b", "c", "d"]).await;
    fs::write(dir.path().join("disk"), "84").expect("written");
    // Another process of this worker.
    fixture.config = engine(dir.path(), Some(quick(85, 70)));
    fixture.restart().await;
    settled(&fixture, dir.path(), "a look", || true).await;
    assert_eq!(removed(dir.path()), [""; 0], "the disk has room");
    // It is there already, and is used after the others.
    let again = fixture.start(5, of_image("a"));
    fixture.outcome(again).await;
    fixture.docker().forget(again);
    fixture.docker().wait_for_removals().await;
    fs::write(dir.path().join("disk"), "90").expect("written");
    settled(&fixture, dir.path(), "two are removed", || removed(dir.path()).len() >= 2).await;

    assert_eq!(removed(dir.path()), ["sha256:0-b", "sha256:0-c"]);
    // One that is needed again is pulled again.
    let outcome = fixture.run(6, of_image("b")).await;
    assert!(dir.path().join("images/sha256:0-b").exists(), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_somebody_needs_or_has_named_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
    let mut fixture = DockerFixture::without_image(engine(dir.path(), Some(quick(85, 0))));
    file("disk", "10");
    pull(&mut fixture, &["contained", "waiting", "named", "refused", "idle"]).await;
    file("images/sha256:0-local", "{\"id\":\"sha256:0-local\",\"tags\":[\"local:latest\"],\"size\":10}\n");
    file(
        "images/sha256:0-named",
        "{\"id\":\"sha256:0-named\",\"tags\":[\"named:latest\",\"mine:1\"],\"size\":10}\n",
    );
    file("containers", "c1\n");
    file("container-c1", "c1 sha256:0-contained\n");
    fixture.gate_closed.store(true, Ordering::Relaxed);
    let waiting = fixture.start(9, of_image("waiting"));
    fixture.event(|it| matches!(it, RuntimeEvent::Prepared(token) if *token == waiting).then_some(())).await;

    // An engine that does not list its containers may have any.
    file("unlisted", "");
    file("disk", "90");
    settled(&fixture, dir.path(), "a look", || true).await;
    assert_eq!(removed(dir.path()), [""; 0]);
    fs::remove_file(dir.path().join("unlisted")).expect("it is there");
    let left = |image: &str| dir.path().join(format!("images/sha256:0-{image}")).exists();
    settled(&fixture, dir.path(), "the idle one is removed", || !left("idle")).await;

    assert!(["contained", "waiting", "named", "refused", "local"].into_iter().all(left));
    let mut tried = removed(dir.path());
    tried.sort();
    assert_eq!(tried, ["sha256:0-idle", "sha256:0-refused"], "a refused one is not tried again soon");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_image_gets_the_tags_back_that_were_removed_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(engine(dir.path(), None));
    pull(&mut fixture, &["refused"]).await;
    // A second name under which this worker pulls the same image.
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
    write("alias-also", "refused");
    write(
        "images/sha256:0-refused",
        r#"{"id":"sha256:0-refused","tags":["refused:latest","also:latest"],"size":10}"#,
    );
    let also = ContainerSpec { pull_policy: PullPolicy::Always, ..of_image("also") };
    let again = fixture.start(2, also);
    fixture.outcome(again).await;
    fixture.docker().forget(again);
    fixture.docker().wait_for_removals().await;
    write("disk", "90");
    fixture.config = engine(dir.path(), Some(quick(85, 70)));
    fixture.restart().await;
    settled(&fixture, dir.path(), "a refusal", || !removed(dir.path()).is_empty()).await;
    assert_eq!(removed(dir.path()), ["also:latest sha256:0-refused"]);
    let tagged = fs::read_to_string(dir.path().join("tagged")).unwrap_or_default();
    assert_eq!(tagged, "sha256:0-refused also:latest\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn young_images_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = ImageGcSettings { min_age: MIN_AGE, ..quick(85, 0) };
    let mut fixture = DockerFixture::without_image(engine(dir.path(), Some(settings)));
    fs::write(dir.path().join("disk"), "90").expect("written");
    pull(&mut fixture, &["a"]).await;
    settled(&fixture, dir.path(), "a look", || true).await;
    assert_eq!(removed(dir.path()), [""; 0]);
}

/// Images of a real engine, by names that no other test has. They are removed at the end.
struct RealImages {
    names: Vec<String>,
}

impl RealImages {
    fn exists(&self, index: usize) -> bool {
        docker(["image", "inspect", "--", &self.names[index]]).status.success()
    }
}

impl Drop for RealImages {
    fn drop(&mut self) {
        for name in &self.names {
            docker(["image", "rm", "--force", "--", name]);
        }
    }
}

/// The real program, with a registry that has every image.
fn with_registry(dir: &Path) -> PathBuf {
    let script = format!(
        r#"case $1 in
            pull) printf 'FROM {IMAGE}\nLABEL test=%s\n' "$3" | docker build -q -t "$3" -; exit;;
        esac
        exec docker "$@""#
    );
    stand_in(dir, &script)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_engine_loses_unused_images_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let image_gc = ImageGcSettings { measure: |_| Some(DiskUse { used: 99, usable: 100 }), ..quick(85, 0) };
    // First without the clean-up: every image is there before it begins.
    let config = Config { program: with_registry(dir.path()), ..Config::default() };
    let Some(mut fixture) = DockerFixture::with(config) else { return };
    let unique = format!("longshore-gc-{:08x}", fixture.membership.cluster.0);
    let of = |what: &str| format!("{unique}-{what}:1");
    let images =
        RealImages { names: ["idle", "second", "contained", "running", "named", "mine"].map(of).into() };
    let [idle, second, contained, running, named, mine] =
        [0, 1, 2, 3, 4, 5].map(|it| images.names[it].as_str());
    for (job, image) in [(1, idle), (2, contained), (3, named)] {
        let token = fixture.start(job, of_image(image));
        fixture.outcome(token).await;
        fixture.docker().forget(token);
    }
    // The same image under a second name of this worker, and another one under somebody's name.
    assert!(docker(["tag", named, mine]).status.success());
    stand_in(dir.path(), &format!("[ $1 = pull ] && exec docker tag {idle} {second}; exec docker \"$@\""));
    let token = fixture.start(4, ContainerSpec { pull_policy: PullPolicy::Always, ..of_image(second) });
    fixture.outcome(token).await;
    fixture.docker().forget(token);
    with_registry(dir.path());
    fixture.docker().wait_for_removals().await;
    let container =
        docker(["create", "--label", &format!("longshore.test={unique}"), "--", contained, "true"]);
    let container = String::from_utf8_lossy(&container.stdout).trim().to_owned();
    let busy = fixture.start(5, ContainerSpec { image: running.into(), ..spec(&["sleep", "600"]) });
    fixture.started(busy).await;
    let record = fixture.state.path().join("images.json");
    let is_recorded =
        || fs::read_to_string(&record).is_ok_and(|it| it.contains("-running") && it.contains("-second"));
    fixture.until("the pulls are recorded", is_recorded).await;

    fixture.config.image_gc = Some(image_gc);
    fixture.restart().await;
    fixture.until("the idle image is removed", || !images.exists(0) && !images.exists(1)).await;
    assert!([2, 3, 4, 5].into_iter().all(|it| images.exists(it)), "a container or a name keeps them");

    assert!(docker(["rm", "--", &container]).status.success());
    fixture.until("its image is removed", || !images.exists(2)).await;
    fixture.ask_to_stop(busy, Duration::ZERO);
    fixture.outcome(busy).await;
    assert!(images.exists(3), "its container is there until the end is acknowledged");
    fixture.docker().forget(busy);
    fixture.until("the last image is removed", || !images.exists(3)).await;
    assert!(images.exists(4) && images.exists(5));
}
