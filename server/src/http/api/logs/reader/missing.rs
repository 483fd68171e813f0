//! Output of the current attempt that the server does not have: cut, late or lost.

use std::sync::Arc;

use protocol::report::Stream;

use super::{Current, Item, Reader, is_long_over, length};
use crate::http::middleware::problem::Problem;
use crate::logs::{Piece, PieceData, Streams};
use crate::store::{AttemptRow, JobRecord};

impl Reader {
    /// Reports that the output of one stream was cut, if the cut itself is in the other one. Returns true if an item was produced.
    pub(super) async fn report_cut(
        &mut self,
        record: &JobRecord,
        row: Option<&AttemptRow>,
    ) -> Result<bool, Problem> {
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
    pub(super) async fn report_missing(&mut self, row: Option<&AttemptRow>) -> Result<bool, Problem> {
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
