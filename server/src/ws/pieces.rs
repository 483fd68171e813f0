//! Counts the pieces of messages (BAD-INPUTS.md row 86). The WebSocket library bounds the bytes of a message, but not the number of frames
//! that it comes in; each costs time, and an empty one adds no bytes.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

/// A message may come in this many frames. `docs/protocol.md` promises it.
const PIECES_MAX: u32 = 1_024;

/// What reading ends with when a message comes in more.
#[derive(Debug, thiserror::Error)]
#[error("a message in more than {PIECES_MAX} fragments")]
pub(super) struct TooManyPieces;

/// A stream of which each byte that is read is part of a frame.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    pieces: Pieces,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, pieces: Pieces::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        Poll::Ready(self.pieces.follow(&into.filled()[before..]).map_err(io::Error::other))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
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

/// Goes along with a stream of frames, wherever it is cut.
#[derive(Debug, Default)]
struct Pieces {
    /// The head of the next frame, as far as it has come.
    head: Vec<u8>,
    /// How much of the frame at hand is still to come.
    payload_left: u64,
    /// Of the message at hand.
    count: u32,
}

impl Pieces {
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), TooManyPieces> {
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
                // Whoever reads this says what is wrong with it, and reads no further.
                Err(_) => self.payload_left = u64::MAX,
            }
        }
        Ok(())
    }

    fn count(&mut self, head: &FrameHeader) -> Result<(), TooManyPieces> {
        match head.opcode {
            OpCode::Data(Data::Continue) => self.count += 1,
            OpCode::Data(_) => self.count = 1,
            // May come between the pieces of a message.
            OpCode::Control(_) => {}
        }
        if self.count > PIECES_MAX { Err(TooManyPieces) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::protocol::frame::Frame;

    use super::*;

    /// A message in so many pieces of this size, with a ping behind each.
    fn message(pieces: u32, bytes: usize) -> Vec<u8> {
        let mut written = Vec::new();
        for piece in 1..=pieces {
            let kind = if piece == 1 { Data::Binary } else { Data::Continue };
            let part = Frame::message(vec![0x82; bytes], OpCode::Data(kind), piece == pieces);
            part.format(&mut written).unwrap();
            Frame::ping(vec![0; 3]).format(&mut written).unwrap();
        }
        written
    }

    /// Whether such messages pass, however they are cut.
    fn pass(messages: &[Vec<u8>]) -> bool {
        let all = messages.concat();
        let passes = [1, 7, 4_096, all.len()].map(|cut| {
            let mut pieces = Pieces::default();
            all.chunks(cut).all(|part| pieces.follow(part).is_ok())
        });
        assert!(passes.windows(2).all(|pair| pair[0] == pair[1]), "{passes:?}");
        passes[0]
    }

    #[test]
    fn a_message_has_so_many_pieces_and_not_one_more() {
        for bytes in [0, 1, 126, 70_000] {
            let most = message(PIECES_MAX, bytes);
            assert!(pass(&[most.clone(), message(1, bytes), most]), "{bytes}");
            assert!(!pass(&[message(PIECES_MAX + 1, bytes)]), "{bytes}");
        }
    }

    #[test]
    fn whole_messages_are_not_pieces_of_one() {
        assert!(pass(&vec![message(1, 20); 3_000]));
    }

    #[test]
    fn what_is_no_frame_is_left_to_whoever_reads_it() {
        let reserved = [0x83, 0x00];
        assert!(pass(&[reserved.to_vec(), message(PIECES_MAX + 1, 1)]));
    }
}
