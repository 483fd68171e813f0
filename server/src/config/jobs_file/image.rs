//! Image references by Docker's grammar: `[registry[:port]/]name[:tag][@digest]`.

use super::fault::FaultCode;
use super::grammar::ValueFault;

/// Checks an image reference.
pub(super) fn check(text: &str) -> Result<(), ValueFault> {
    let wrong = |reason: &str| Err(ValueFault::input(FaultCode::InvalidImage, text, reason));
    if text.starts_with('-') {
        return wrong("must not start with \"-\"");
    }
    if text.chars().count() > IMAGE_CHARS_MAX {
        return Err(ValueFault::new(
            FaultCode::TooLong,
            format!("the image reference is too long (max {IMAGE_CHARS_MAX})"),
        ));
    }
    if is_image(text) {
        return Ok(());
    }
    wrong("is not [registry[:port]/]name[:tag][@digest] with a name in lower case")
}

fn is_image(text: &str) -> bool {
    let (text, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let last_part = text.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match text[last_part..].find(':') {
        Some(colon) => (&text[..last_part + colon], Some(&text[last_part + colon + 1..])),
        None => (text, None),
    };
    let path = match name.split_once('/') {
        Some((registry, path))
            if registry == "localhost" || registry.contains(['.', ':']) || has_upper(registry) =>
        {
            if !is_registry(registry) {
                return false;
            }
            path
        }
        _ => name,
    };
    path.split('/').all(is_image_part) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

fn has_upper(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(label)
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Words of lower-case letters and digits, joined by one dot, one or two underscores, or hyphens.
fn is_image_part(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let framed = bytes.first().copied().is_some_and(is_word) && bytes.last().copied().is_some_and(is_word);
    framed
        && text
            .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|byte| byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    text.len() <= 128
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let is_algorithm = !algorithm.is_empty()
        && algorithm.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && algorithm.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+._-".contains(&byte));
    is_algorithm && hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}
const IMAGE_CHARS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_follow_the_grammar_of_docker() {
        let digest = format!("busybox@sha256:{}", "a".repeat(64));
        for good in
            ["busybox", "a/b/c:1.0", "localhost:5000/x:y", "ghcr.io/a__b/c-d.e:T_1", "Reg/x", digest.as_str()]
        {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in
            ["", "UPPER:Case", "a b", "a//b", "/a", "a/", "a:", "a@sha256:12", "a..b", "-a", "a:b:c", "ä"]
        {
            assert_eq!(check(bad).expect_err(bad).code, FaultCode::InvalidImage, "{bad}");
        }
        assert_eq!(check(&"a".repeat(5000)).expect_err("too long").code, FaultCode::TooLong);
    }
}
