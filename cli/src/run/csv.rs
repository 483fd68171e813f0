//! CSV as RFC 4180 has it, with a header: fields in quotes may contain commas, doubled quotes and line breaks. Commas separate, nothing else,
//! and spaces belong to their field.
//!
//! Written by hand, because libraries for CSV read on over a missing quote, and take text after a closing one as part of the field: here both
//! are faults, since a shifted field would start a wrong job.

use serde_json::{Value, json};

/// The parameters of a record by the names of the header, with the line on which the record begins.
pub(super) type Record = (usize, Vec<(String, Value)>);

/// The line on which a faulty record begins, and what is wrong.
pub(super) type Fault = (usize, String);

/// Reads records line by line.
#[derive(Debug, Default)]
pub(super) struct Reader {
    header: Option<Vec<String>>,
    /// A record whose last field in quotes goes on in the next line.
    open: Option<OpenRecord>,
}

#[derive(Debug, Default)]
struct OpenRecord {
    first_line: usize,
    bytes: usize,
    /// The fields that are complete.
    fields: Vec<String>,
    /// The text so far of a field whose quote is not closed.
    quoted: Option<String>,
}

impl Reader {
    /// Takes a line with its line break. Blank lines between records are left out, and an empty field is no parameter.
    ///
    /// # Errors
    /// The record is not CSV, or has more or fewer fields than the header.
    pub(super) fn take(&mut self, number: usize, line: &str) -> Result<Option<Record>, Fault> {
        let record = match self.open.take() {
            Some(record) => record,
            None if line.trim().is_empty() => return Ok(None),
            None => OpenRecord { first_line: number, ..OpenRecord::default() },
        };
        let first_line = record.first_line;
        self.take_into(record, line).map_err(|why| (first_line, why))
    }

    fn take_into(&mut self, mut record: OpenRecord, line: &str) -> Result<Option<Record>, String> {
        if !record.add(line)? {
            self.open = Some(record);
            return Ok(None);
        }
        let OpenRecord { first_line, fields, .. } = record;
        let Some(header) = &self.header else {
            self.header = Some(names(fields)?);
            return Ok(None);
        };
        if fields.len() != header.len() {
            return Err(format!("it has {} fields, and the header names {}", fields.len(), header.len()));
        }
        let given = header.iter().cloned().zip(fields).filter(|(_, value)| !value.is_empty());
        Ok(Some((first_line, given.map(|(name, value)| (name, json!(value))).collect())))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// A quote is not closed.
    pub(super) fn finish(self) -> Result<(), Fault> {
        match self.open {
            Some(open) => Err((open.first_line, "a quote is not closed".to_owned())),
            None => Ok(()),
        }
    }
}

impl OpenRecord {
    /// Adds the fields of the next line. True if the record ends there: no quote is open.
    fn add(&mut self, line: &str) -> Result<bool, String> {
        self.bytes += line.len();
        if self.bytes > RECORD_BYTES_MAX {
            return Err("the record is too long: a quote may be missing".to_owned());
        }
        let text = without_break(line);
        let line_break = &line[text.len()..];
        let (mut quoted, mut rest) = (self.quoted.take(), text);
        loop {
            if quoted.is_none()
                && let Some(after) = rest.strip_prefix('"')
            {
                (quoted, rest) = (Some(String::new()), after);
            }
            let (field, after) = match quoted.take() {
                Some(mut field) => {
                    let Some(after) = unquote(rest, &mut field) else {
                        field.push_str(line_break);
                        self.quoted = Some(field);
                        return Ok(false);
                    };
                    (field, after)
                }
                None => {
                    let (field, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                    if field.trim_start().starts_with('"') {
                        let number = self.fields.len() + 1;
                        return Err(format!(
                            "field {number} has a space before its quote: spaces belong to a field"
                        ));
                    }
                    (field.to_owned(), after)
                }
            };
            self.fields.push(field);
            if after.is_empty() {
                return Ok(true);
            }
            rest = after
                .strip_prefix(',')
                .ok_or_else(|| format!("field {} goes on after its closing quote", self.fields.len()))?;
        }
    }
}

/// The names of the parameters.
fn names(names: Vec<String>) -> Result<Vec<String>, String> {
    if names.iter().any(|name| name.trim().is_empty()) {
        return Err("the header has a field without a name".to_owned());
    }
    if let Some(name) = names.iter().find(|name| name.trim() != *name) {
        return Err(format!(
            "the header has spaces around the name {}: spaces belong to a field",
            name.trim()
        ));
    }
    match (1..names.len()).find(|index| names[..*index].contains(&names[*index])) {
        Some(index) => Err(format!("the header names {} twice", names[index])),
        None => Ok(names),
    }
}

/// Appends the text up to the closing quote to the field, and returns what follows it; none without one, and then the field has all the text.
fn unquote<'t>(text: &'t str, field: &mut String) -> Option<&'t str> {
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            field.push_str(rest);
            return None;
        };
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Some(after),
        }
    }
}

/// A line without its line break.
pub(super) fn without_break(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// Bytes of a record; more mean that a quote is missing.
const RECORD_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(usize, String)>, Fault> {
        let (mut reader, mut records) = (Reader::default(), Vec::new());
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            records.extend(reader.take(number, line)?.map(|(first, given)| {
                let pairs = given.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap()));
                (first, pairs.collect::<Vec<_>>().join(" "))
            }));
        }
        reader.finish().map(|()| records)
    }

    #[test]
    fn records_have_the_names_of_the_header_and_their_first_line() {
        let text = "size,mode\n640,fast\r\n\n,\"a, \"\"b\"\"\"\n\"1\n2\",x\n\"\",\"\"\n\"1\r\n\n\"\"2\", x";
        let expected = [
            (2, "size=640 mode=fast"),
            (4, "mode=a, \"b\""),
            (5, "size=1\n2 mode=x"),
            (7, ""),
            (8, "size=1\r\n\n\"2 mode= x"),
        ];
        assert_eq!(read(text).unwrap(), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn what_is_no_csv_is_refused_with_its_line() {
        let spaces = "the header has spaces around the name b: spaces belong to a field";
        let long = format!("a\n\"\n{}", "x\n".repeat(RECORD_BYTES_MAX / 2));
        for (text, line, why) in [
            ("a,b\n1\n", 2, "it has 1 fields, and the header names 2"),
            ("a,b\n\"1\n2\n\"\n", 2, "it has 1 fields, and the header names 2"),
            ("a,a\n", 1, "the header names a twice"),
            ("a,,b\n", 1, "the header has a field without a name"),
            ("a, b\n", 1, spaces),
            ("a,b\n\"1\"2,3\n", 2, "field 1 goes on after its closing quote"),
            ("a,b\n1, \"2, 3\"\n", 2, "field 2 has a space before its quote: spaces belong to a field"),
            ("a\nx\n\"1\nand more\n", 3, "a quote is not closed"),
            (&long, 2, "the record is too long: a quote may be missing"),
        ] {
            assert_eq!(read(text).unwrap_err(), (line, why.to_owned()), "{:?}", &text[..text.len().min(40)]);
        }
    }
}
