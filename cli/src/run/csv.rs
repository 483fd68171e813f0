//! CSV as RFC 4180 has it, with a header: fields in quotes may contain commas, doubled quotes and line breaks. Commas separate, nothing else.

use serde_json::{Value, json};

/// The parameters of a record by the names of the header, with the line on which the record begins.
pub(super) type Record = (usize, Vec<(String, Value)>);

/// Reads records line by line.
#[derive(Debug, Default)]
pub(super) struct Reader {
    header: Option<Vec<String>>,
    /// A record whose last field in quotes goes on in the next line.
    open: Option<OpenRecord>,
}

#[derive(Debug)]
struct OpenRecord {
    first_line: usize,
    text: String,
}

impl Reader {
    /// Takes a line. Blank lines between records are left out, and an empty field is no parameter.
    ///
    /// # Errors
    /// The record is not CSV, or has more or fewer fields than the header.
    pub(super) fn take(&mut self, number: usize, line: &str) -> Result<Option<Record>, String> {
        let record = match self.open.take() {
            Some(mut open) => {
                open.text.push('\n');
                open.text.push_str(line);
                open
            }
            None if line.trim().is_empty() => return Ok(None),
            None => OpenRecord { first_line: number, text: line.to_owned() },
        };
        if record.text.len() > RECORD_BYTES_MAX {
            return Err(format!(
                "the record from line {} on is too long: a quote may be missing",
                record.first_line
            ));
        }
        let Some(fields) = split(&record.text)? else {
            self.open = Some(record);
            return Ok(None);
        };
        let Some(header) = &self.header else {
            self.header = Some(names(fields)?);
            return Ok(None);
        };
        if fields.len() != header.len() {
            return Err(format!("it has {} fields, and the header names {}", fields.len(), header.len()));
        }
        let given = header.iter().cloned().zip(fields).filter(|(_, value)| !value.is_empty());
        Ok(Some((record.first_line, given.map(|(name, value)| (name, json!(value))).collect())))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// A quote is not closed: the line on which its record begins.
    pub(super) fn finish(self) -> Result<(), (usize, String)> {
        match self.open {
            Some(open) => Err((open.first_line, "a quote is not closed".to_owned())),
            None => Ok(()),
        }
    }
}

/// The names of the parameters.
fn names(fields: Vec<String>) -> Result<Vec<String>, String> {
    let names: Vec<String> = fields.into_iter().map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err("the header has a field without a name".to_owned());
    }
    match (1..names.len()).find(|index| names[..*index].contains(&names[*index])) {
        Some(index) => Err(format!("the header names {} twice", names[index])),
        None => Ok(names),
    }
}

/// The fields of a record; none if a quote is still open at its end.
fn split(text: &str) -> Result<Option<Vec<String>>, String> {
    let (mut fields, mut rest) = (Vec::new(), text);
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => match unquote(quoted) {
                Some(read) => read,
                None => return Ok(None),
            },
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        if after.is_empty() {
            return Ok(Some(fields));
        }
        rest = after
            .strip_prefix(',')
            .ok_or_else(|| format!("field {} goes on after its closing quote", fields.len()))?;
    }
}

/// The text up to the closing quote, and what follows it; none without one.
fn unquote(text: &str) -> Option<(String, &str)> {
    let (mut field, mut rest) = (String::new(), text);
    loop {
        let (before, after) = rest.split_once('"')?;
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Some((field, after)),
        }
    }
}

/// Bytes of a record; more mean that a quote is missing.
const RECORD_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(usize, String)>, (usize, String)> {
        let (mut reader, mut records) = (Reader::default(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let taken = reader.take(number, line).map_err(|why| (number, why))?;
            records.extend(taken.map(|(first, given)| {
                let pairs = given.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap()));
                (first, pairs.collect::<Vec<_>>().join(" "))
            }));
        }
        reader.finish().map(|()| records)
    }

    #[test]
    fn records_have_the_names_of_the_header_and_their_first_line() {
        let text = "size, mode\n640,fast\n\n,\"a, \"\"b\"\"\"\n\"1\n2\",x\n\"\",\"\"\n";
        let expected = [(2, "size=640 mode=fast"), (4, "mode=a, \"b\""), (5, "size=1\n2 mode=x"), (7, "")];
        assert_eq!(read(text).unwrap(), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn what_is_no_csv_is_refused_with_its_line() {
        for (text, line, why) in [
            ("a,b\n1\n", 2, "it has 1 fields, and the header names 2"),
            ("a,a\n", 1, "the header names a twice"),
            ("a,,b\n", 1, "the header has a field without a name"),
            ("a,b\n\"1\"2,3\n", 2, "field 1 goes on after its closing quote"),
            ("a\nx\n\"1\nand more\n", 3, "a quote is not closed"),
        ] {
            assert_eq!(read(text).unwrap_err(), (line, why.to_owned()), "{text:?}");
        }
    }
}
