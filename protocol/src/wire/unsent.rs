//! Fields that the body of a frozen message does not have.

use core::ops::{Deref, DerefMut};

use bincode::de::{BorrowDecoder, Decoder};
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{BorrowDecode, Decode, Encode};
use serde::{Deserialize, Serialize};

/// A field that was added to a type after the message that carries the type was frozen. It takes no bytes in that message and is read as
/// its default; a message with a tag of its own carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unsent<T>(pub T);

impl<T> Deref for Unsent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Unsent<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Encode for Unsent<T> {
    fn encode<E: Encoder>(&self, _encoder: &mut E) -> Result<(), EncodeError> {
        Ok(())
    }
}

impl<C, T: Default> Decode<C> for Unsent<T> {
    fn decode<D: Decoder<Context = C>>(_decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(Self::default())
    }
}

impl<'de, C, T: Default> BorrowDecode<'de, C> for Unsent<T> {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(_decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(Self::default())
    }
}
