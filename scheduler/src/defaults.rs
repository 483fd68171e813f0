//! Fields that the stored form of a definition leaves out, so that a new field changes no revision of an older file.
//! `#[serde(skip_serializing_if = "is_default")]`.

/// The value is not written, because it is the default.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
