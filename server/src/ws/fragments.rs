//! Limits the frames of a message (docs/design/bad-inputs.md, row 86). The WebSocket library bounds the bytes of a message, but not the number of frames; each costs time, and
//! an empty one adds no bytes.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use protocol::close::{self, Close};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::Error as WireError;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

/// Frames of one message; `docs/protocol.md` states the limit.
const FRAGMENTS_MAX: u32 = 1_024;

/// The read error for a message of more frames.
#[derive(Debug, thiserror::Error)]
#[error("a message in more than {FRAGMENTS_MAX} fragments")]
pub(super) struct TooManyFragments;

/// A stream of WebSocket frames that are counted as they are read.
#[derive(Debug)]
pub(super) struct FragmentLimit<S> {
    stream: S,
    fragments: FrameScanner,
}

impl<S> FragmentLimit<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, fragments: FrameScanner::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FragmentLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        Poll::Ready(self.fragments.follow(&into.filled()[before..]).map_err(io::Error::other))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FragmentLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Follows a stream of frames, however it is cut into reads.
#[derive(Debug, Default)]
struct FrameScanner {
    /// The bytes of an incomplete frame header.
    head: Vec<u8>,
    /// Payload bytes of the present frame that are still to come.
    payload_left: u64,
    /// Frames of the present message.
    count: u32,
}

impl FrameScanner {
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), TooManyFragments> {
        while let Some((next, rest)) = bytes.split_first() {
            if self.payload_left > 0 {
                let passed =
                    usize::try_from(self.payload_left).map_or(bytes.len(), |left| left.min(bytes.len()));
                self.payload_left -= passed as u64;
                bytes = &bytes[passed..];
                continue;
            }
            self.head.push(*next);
            bytes = rest;
            match FrameHeader::parse(&mut Cursor::new(&self.head)) {
                Ok(None) => {}
                Ok(Some((head, payload))) => {
                    self.head.clear();
                    self.payload_left = payload;
                    self.count(&head)?;
                }
                // The library reports the malformed frame and reads no further.
                Err(_) => self.payload_left = u64::MAX,
            }
        }
        Ok(())
    }

    fn count(&mut self, head: &FrameHeader) -> Result<(), TooManyFragments> {
        match head.opcode {
            OpCode::Data(Data::Continue) => self.count += 1,
            OpCode::Data(_) => self.count = 1,
            // Control frames may come between the frames of a message.
            OpCode::Control(_) => {}
        }
        if self.count > FRAGMENTS_MAX { Err(TooManyFragments) } else { Ok(()) }
    }
}

/// The close reason for bytes that are not valid WebSocket messages, or too large.
pub(super) fn broken(error: &WireError) -> Option<Close> {
    match error {
        WireError::Capacity(limit) => Some(close::TOO_LARGE.with_reason(limit)),
        WireError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        WireError::Protocol(fault) => Some(close::PROTOCOL_ERROR.with_reason(fault)),
        WireError::Io(error) => {
            let many = error.get_ref().and_then(|cause| cause.downcast_ref::<TooManyFragments>());
            many.map(|many| close::TOO_LARGE.with_reason(many))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::protocol::frame::Frame;

    use super::*;

    /// A message in this many frames of this size, with a ping after each.
    fn message(fragments: u32, bytes: usize) -> Vec<u8> {
        let mut written = Vec::new();
        for piece in 1..=fragments {
            let kind = if piece == 1 { Data::Binary } else { Data::Continue };
            let part = Frame::message(vec![0x82; bytes], OpCode::Data(kind), piece == fragments);
            part.format(&mut written).unwrap();
            Frame::ping(vec![0; 3]).format(&mut written).unwrap();
        }
        written
    }

    /// True if such messages pass for every way to cut them.
    fn pass(messages: &[Vec<u8>]) -> bool {
        let all = messages.concat();
        let passes = [1, 7, 4_096, all.len()].map(|cut| {
            let mut fragments = FrameScanner::default();
            all.chunks(cut).all(|part| fragments.follow(part).is_ok())
        });
        assert!(passes.windows(2).all(|pair| pair[0] == pair[1]), "{passes:?}");
        passes[0]
    }

    #[test]
    fn a_message_has_at_most_the_limit_of_fragments() {
        for bytes in [0, 1, 126, 70_000] {
            let most = message(FRAGMENTS_MAX, bytes);
            assert!(pass(&[most.clone(), message(1, bytes), most]), "{bytes}");
            assert!(!pass(&[message(FRAGMENTS_MAX + 1, bytes)]), "{bytes}");
        }
    }

    #[test]
    fn many_whole_messages_are_allowed() {
        assert!(pass(&vec![message(1, 20); 3_000]));
    }

    #[test]
    fn malformed_frames_are_left_to_the_library() {
        let reserved = [0x83, 0x00];
        assert!(pass(&[reserved.to_vec(), message(FRAGMENTS_MAX + 1, 1)]));
    }
}
