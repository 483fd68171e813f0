//! The page of a job.

use protocol::report::Stream;

use crate::support::output;

#[tokio::test]
async fn the_page_of_a_job_has_its_last_lines_of_output() {
    let server = output::silent().await;
    assert!(!server.get("/jobs/1").await.body.contains("Last output"), "it has written nothing");
    output::write(&server, 101, Stream::Stderr, 0, "\u{1b}[31mno <b>space</b>\u{1b}[0m left\n").await;
    let page = server.get("/jobs/1").await.body;
    assert!(page.contains("Last output") && page.contains("no &#60;b&#62;space&#60;/b&#62; left"), "{page}");
}
