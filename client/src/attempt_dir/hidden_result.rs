//! Masks the values of secrets in the result of a job, as in its output.

use serde_json::Value;
use worker::input::ResultFile;

use super::AttemptDir;
use super::exchange::check_result;
use crate::logs::mask::Mask;

impl AttemptDir {
    /// The result with the values of the attempt's secrets masked. It is refused if they cannot be read any more, or would stay visible.
    #[must_use]
    pub(crate) fn hide_secrets(&self, result: ResultFile) -> ResultFile {
        let ResultFile::Json(text) = result else { return result };
        let gone = || {
            tracing::error!(attempt = %self.path().display(), "the secrets of this attempt are gone, so its result is withheld");
            ResultFile::Unusable("the secrets of the attempt are gone, so it cannot be masked".to_owned())
        };
        let path = match self.secrets() {
            Ok(Some(path)) => path,
            Ok(None) if !self.has_secrets() => return ResultFile::Json(text),
            Ok(None) | Err(_) => return gone(),
        };
        let Ok(secrets) = crate::secrets::read(&path) else { return gone() };
        let values = secrets.masked.iter().map(|value| value.0.as_slice());
        match Mask::new(values, &[]) {
            Ok(Some(mask)) => masked(text, &mask),
            Ok(None) | Err(_) => ResultFile::Json(text),
        }
    }
}

/// A result without a value is kept byte by byte: a number may have more digits than a parser keeps.
fn masked(text: String, mask: &Mask) -> ResultFile {
    let is_in_text = hidden(&text, mask).is_some();
    let mut value = match serde_json::from_str::<Value>(&text) {
        Ok(value) => value,
        // Too deep, or a number out of range. Without a backslash strings stand there as they are.
        Err(_) if !is_in_text && !text.contains('\\') => return ResultFile::Json(text),
        Err(error) => return ResultFile::Unusable(format!("it cannot be searched for secrets: {error}")),
    };
    if !hide(&mut value, mask) && !is_in_text {
        return ResultFile::Json(text);
    }
    // Digits of a number that the parser rounds would stay visible.
    if is_in_text && has_rounded(&value) {
        return ResultFile::Unusable("it has the value of a secret".to_owned());
    }
    let text = value.to_string();
    match hidden(&text, mask) {
        // It spans several values.
        Some(_) => ResultFile::Unusable("it has the value of a secret".to_owned()),
        None => check_result(text.as_bytes()),
    }
}

fn has_rounded(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(list) => list.iter().any(has_rounded),
        Value::Object(fields) => fields.values().any(has_rounded),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Masks strings, names and numbers. Returns true if there was something to mask.
fn hide(value: &mut Value, mask: &Mask) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => {
            let text = hidden(&number.to_string(), mask);
            replace(value, text)
        }
        Value::String(text) => {
            let text = hidden(text, mask);
            replace(value, text)
        }
        Value::Array(list) => list.iter_mut().fold(false, |is_hidden, item| hide(item, mask) | is_hidden),
        Value::Object(fields) => {
            let mut is_hidden = false;
            for (name, mut field) in std::mem::take(fields) {
                is_hidden |= hide(&mut field, mask);
                let shown = hidden(&name, mask);
                is_hidden |= shown.is_some();
                fields.insert(shown.unwrap_or(name), field);
            }
            is_hidden
        }
    }
}

fn replace(value: &mut Value, text: Option<String>) -> bool {
    let is_hidden = text.is_some();
    if let Some(text) = text {
        *value = Value::String(text);
    }
    is_hidden
}

/// The masked text; `None` if nothing in it is to be masked.
fn hidden(text: &str, mask: &Mask) -> Option<String> {
    let masked = mask.whole(text.as_bytes())?;
    // A value that is no UTF-8 may have covered a part of a character.
    Some(String::from_utf8_lossy(&masked).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_wherever_they_stand_in_a_result() {
        let values: [&[u8]; 3] = [b"hunter22", b"say \"x\"\n", b"123456"];
        let mask = Mask::new(values, &[]).expect("no pattern").expect("values");
        for (left, kept) in [
            (r#"{"a": 1.50, "a": 1e400}"#, None),
            (r#"{"copy":"my hunter22!"}"#, Some(r#"{"copy":"my ********!"}"#)),
            (r#"{"hunter22":[true,"hunt\u0065r22"]}"#, Some(r#"{"********":[true,"********"]}"#)),
            (r#"["say \"x\"",123456,-1234567]"#, Some(r#"["*******","******","-******7"]"#)),
            (r#""unharmed 12345""#, None),
        ] {
            let kept = kept.unwrap_or(left).to_owned();
            assert_eq!(masked(left.to_owned(), &mask), ResultFile::Json(kept), "{left}");
        }
        let values: [&[u8]; 2] = [b"4111111111111111222233", b"1234.50"];
        let mask = Mask::new(values, &[]).expect("no pattern").expect("values");
        for left in [r#"{"n":4111111111111111222233}"#, "[1234.50]"] {
            assert!(matches!(masked(left.to_owned(), &mask), ResultFile::Unusable(_)), "{left}");
        }
        let values: [&[u8]; 1] = [br#"1,"b""#];
        let mask = Mask::new(values, &[]).expect("no pattern").expect("a value");
        assert!(matches!(masked(r#"[1,"b"]"#.to_owned(), &mask), ResultFile::Unusable(_)));
    }
}
