//! Output of the current attempt that the server does not have: withheld, cut, late or lost. And how the attempt ended.

use std::sync::Arc;
use std::time::Duration;

use protocol::AttemptNo;
use protocol::report::{Stream, head_bytes};
use tokio::time::Instant;

use super::{Current, Item, Reader, Retried, attempts, is_long_over, length};
use crate::http::api::jobs::find;
use crate::http::api::logs::cut::CutRule;
use crate::http::middleware::problem::Problem;
use crate::http::present::ending;
use crate::logs::{BYTES_MAX_FROM, Page, Piece, PieceData, Streams};
use crate::store::{AttemptRow, JobRecord, JobRow};

impl Reader {
    /// The rule that tells cuts from losses on this page, if output is missing on it. The report of an end does not come in step with the
    /// output, so a follower waits for it a little.
    pub(super) async fn cut_rule(
        &mut self,
        number: AttemptNo,
        page: &Page,
    ) -> Result<Option<CutRule>, Problem> {
        if !page.pieces.iter().any(|piece| matches!(piece.data, PieceData::Gap(_) | PieceData::Cut(_))) {
            return Ok(None);
        }
        let Some(attempt) = self.current.as_ref().map(|current| current.attempt) else { return Ok(None) };
        let which = self.start.which;
        loop {
            let record = self.record().await?;
            let bytes_max = self.bytes_max(&record.row).await?;
            let row = attempts(&record).find(|attempt| attempt.number == number);
            let rule = CutRule::new(bytes_max, row);
            if !self.start.follow || rule.is_final() {
                return Ok(Some(rule));
            }
            let logs = Arc::clone(&self.state.services.logs);
            let stored = self.state.block(move || Ok(logs.lengths(attempt)?)).await?;
            let waits = page.pieces.iter().any(|piece| rule.is_undecided(piece, which, &stored));
            let Some(current) = self.current.as_mut().filter(|_| waits) else { return Ok(Some(rule)) };
            let until = *current.report_deadline.get_or_insert_with(|| Instant::now() + REPORT_TIMEOUT);
            if Instant::now() >= until {
                return Ok(Some(rule));
            }
            self.may_have_changed = true;
            tokio::select! {
                () = self.state.services.shutdown.cancelled() => return Ok(Some(rule)),
                () = self.changes.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Reports once for an attempt that its worker has sent the beginning of its output, up to three quarters of `log.max_bytes`, and sends
    /// nothing more before the end. Returns true if an item was produced.
    pub(super) async fn report_withheld(&mut self, job: Option<&JobRow>) -> Result<bool, Problem> {
        let may_be = |current: &&Current| !current.is_over && !current.withheld_reported;
        let Some(current) = self.current.as_ref().filter(may_be) else { return Ok(false) };
        let (position, attempt) = (current.position, current.attempt);
        if self.start.which == Streams::Both && position < head_bytes(BYTES_MAX_FROM) {
            return Ok(false);
        }
        let bytes_max = match (self.bytes_max, job) {
            (Some(known), _) => known,
            (None, Some(job)) => self.bytes_max(job).await?,
            (None, None) => {
                let record = find(&self.state, self.job).await?;
                self.bytes_max(&record.row).await?
            }
        };
        let shown_bytes = head_bytes(bytes_max);
        if self.start.which == Streams::Both && position < shown_bytes {
            return Ok(false);
        }
        let logs = Arc::clone(&self.state.services.logs);
        let stored = self.state.block(move || Ok(logs.lengths(attempt)?)).await?;
        // More is here once the attempt has ended and the rest has come.
        if length(&stored, Streams::Both) != shown_bytes || position < length(&stored, self.start.which) {
            return Ok(false);
        }
        if let Some(current) = &mut self.current {
            current.withheld_reported = true;
        }
        self.ready.push_back(Item::Withheld { shown_bytes, bytes_max });
        Ok(true)
    }

    /// Reports once to a follower that the attempt has ended without being the last one of its job. Returns true if an item was produced.
    pub(super) fn report_end(
        &mut self,
        record: &JobRecord,
        row: Option<&AttemptRow>,
        next: Option<&AttemptRow>,
    ) -> bool {
        let goes_on = self.start.follow && (next.is_some() || !record.row.state.has_ended());
        let (Some(current), Some(ended)) = (&mut self.current, row.filter(|_| goes_on)) else { return false };
        if std::mem::replace(&mut current.end_reported, true) {
            return false;
        }
        let next = next.map(|next| next.number);
        let reason = self.state.presenter().waits_for(&record.row).filter(|_| next.is_none());
        let text = ending::retried_line(&record.row, ended, next, reason.as_ref());
        self.ready.push_back(Item::Retried(Box::new(Retried { ended: ended.clone(), next, reason, text })));
        true
    }

    /// Reports output of an ended attempt that was cut, or that is missing. Returns true if an item was produced.
    pub(super) async fn report_absent(
        &mut self,
        record: &JobRecord,
        row: Option<&AttemptRow>,
        is_cut: bool,
    ) -> Result<bool, Problem> {
        if is_cut { self.report_cut(record, row).await } else { self.report_missing(row).await }
    }

    /// Reports that the output of one stream was cut, if the cut itself is in the other one. Returns true if an item was produced.
    async fn report_cut(&mut self, record: &JobRecord, row: Option<&AttemptRow>) -> Result<bool, Problem> {
        let (Some(row), Streams::Only(stream)) = (row, self.start.which) else { return Ok(false) };
        let bytes_max = self.bytes_max(&record.row).await?;
        let written = length(&row.output, self.start.which);
        let behind = |current: &&mut Current| !current.cut_reported && current.position < written;
        let Some(current) = self.current.as_mut().filter(behind) else { return Ok(false) };
        let at = std::mem::replace(&mut current.position, written);
        current.cut_reported = true;
        let data = PieceData::Cut(written - at);
        let piece = Piece { stream, at, stream_end: written, received_at: None, data };
        self.ready.push_back(Item::Piece { attempt: current.number, piece, cut_at: Some(bytes_max) });
        Ok(true)
    }

    /// Reports output that the final report counted and that is missing. Long after the end of the attempt it counts as lost for good (a
    /// broken disk, a restored backup). Returns true if an item was produced.
    async fn report_missing(&mut self, row: Option<&AttemptRow>) -> Result<bool, Problem> {
        let (Some(current), Some(row)) = (&mut self.current, row) else { return Ok(false) };
        let counted = length(&row.output, self.start.which);
        if current.position >= counted {
            return Ok(false);
        }
        if !is_long_over(row) {
            return self.report_late(counted).await;
        }
        let (logs, attempt) = (Arc::clone(&self.state.services.logs), current.attempt);
        let here = self.state.block(move || Ok(logs.lengths(attempt)?)).await?;
        for (stream, said, here) in [
            (Stream::Stdout, row.output.stdout, here.stdout),
            (Stream::Stderr, row.output.stderr, here.stderr),
        ] {
            let missing = said.saturating_sub(here);
            if missing > 0 && self.start.which.has(stream) {
                let data = PieceData::Gap(missing);
                let at = current.position;
                let piece = Piece { stream, at, stream_end: said, received_at: None, data };
                self.ready.push_back(Item::Piece { attempt: current.number, piece, cut_at: None });
                current.position = current.position.saturating_add(missing);
            }
        }
        Ok(!self.ready.is_empty())
    }

    /// Reports once the number of bytes that may still arrive. Returns true if an item was produced.
    async fn report_late(&mut self, counted: u64) -> Result<bool, Problem> {
        // It may have arrived while the archive was asked.
        if self.read_page().await? {
            return Ok(true);
        }
        let Some(current) = &mut self.current else { return Ok(false) };
        if current.late_reported {
            return Ok(false);
        }
        current.late_reported = true;
        self.ready.push_back(Item::Late { bytes: counted.saturating_sub(current.position) });
        Ok(true)
    }
}

/// The longest wait for the final report of an attempt whose output has a gap.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
