//! Seeds that hold frames of the protocol. Only tests of the workspace use it.

#![expect(clippy::disallowed_methods, reason = "seeds are files; only the crates themselves must be pure")]
#![expect(clippy::unwrap_used, reason = "a seed that cannot be read fails its test")]

use std::fs;
use std::path::Path;

use crate::acts::acts;

/// Reads all seeds of a target, whose acts of kind `frame` are frames. With `LONGSHORE_BLESS` set, the golden frame with the same tag takes
/// the place of each frame that cannot be decoded any more; `golden` is a directory with one frame per file.
pub(crate) fn read(
    target: &str,
    golden: &str,
    frame: u8,
    is_decodable: impl Fn(&[u8]) -> bool,
) -> Vec<Vec<u8>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let is_stale = |(kind, act): (u8, &[u8])| kind == frame && !is_decodable(act);
    let is_blessed = std::env::var_os("LONGSHORE_BLESS").is_some();
    let read = |seed: std::io::Result<fs::DirEntry>| {
        let path = seed.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if is_blessed && acts(&bytes).any(is_stale) {
            bytes = renewed(&bytes, &seeds.join(golden), is_stale);
            fs::write(&path, &bytes).unwrap();
        }
        let stale = acts(&bytes).find(|act| is_stale(*act));
        assert_eq!(stale, None, "{}: a frame that is not spoken any more", path.display());
        bytes
    };
    fs::read_dir(seeds.join(target)).unwrap().map(read).collect()
}

fn renewed(bytes: &[u8], golden: &Path, is_stale: impl Fn((u8, &[u8])) -> bool) -> Vec<u8> {
    let mut renewed = Vec::new();
    for (kind, act) in acts(bytes) {
        let current = is_stale((kind, act)).then(|| golden_frame(golden, act[0]));
        let act = current.as_deref().unwrap_or(act);
        renewed.push(kind);
        renewed.extend(u16::try_from(act.len()).unwrap().to_le_bytes());
        renewed.extend(act);
    }
    renewed
}

fn golden_frame(golden: &Path, tag: u8) -> Vec<u8> {
    let frames = fs::read_dir(golden).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    frames.into_iter().find(|frame| frame[0] == tag).unwrap()
}
