//! Meaning ↔ bytes.
