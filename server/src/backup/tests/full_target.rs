//! Errors of a backup whose target cannot be written.

use baddisk::{Disk, Fault};

use super::*;

#[tokio::test]
async fn the_error_names_the_target_that_is_full_or_cannot_be_written() {
    let (stage, _) = Stage::backed_up().await;
    let (to, draft) = (stage.at("more"), stage.at("more.unfinished"));
    for (fault, expected) in [
        (Fault::Full, format!("the disk of {}, the target of the backup, is full", to.display())),
        (Fault::Writes, format!("cannot write the backup to {}", to.display())),
    ] {
        // The backup makes it again.
        std::fs::create_dir(&draft).unwrap();
        let disk = Disk::at(&draft).unwrap();
        disk.fail(fault, 0);
        let refusal = refusal(take(&stage.data(), &to, false));
        assert!(refusal.starts_with(&expected), "{refusal}");
        assert!(!to.exists() && !draft.exists(), "nothing is left of it");
        disk.clear_fault();
    }
    let beside = stage.at("file");
    std::fs::write(&beside, "").unwrap();
    let refusal = refusal(take(&stage.data(), &beside.join("more"), false));
    assert!(refusal.starts_with("cannot write the backup to ") && refusal.contains("file/more"), "{refusal}");
}
