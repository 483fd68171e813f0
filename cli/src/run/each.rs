//! `longshore run NAME --each FILE`: a batch with a member for each line of a file. The server reports the line of a faulty entry, so each
//! line of the request has the number of its line in the file: lines without a member are empty there.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use super::csv;
use crate::api::{Api, parse};
use crate::failure::{Exit, Failure};
use crate::outage::{Awaited, Outage, until_answered};
use crate::{screen, view};

/// The flags of a batch from a file.
#[derive(Debug, clap::Args)]
pub(crate) struct EachArgs {
    /// Create a batch with a job for each line of this file, - for stdin; blank lines are left out. The line is a parameter of its job.
    #[arg(long, value_name = "FILE", group = "size", conflicts_with_all = ["follow", "as_scheduled"])]
    pub(super) each: Option<PathBuf>,
    /// The parameter that gets the line [default: the only required one that -p does not give].
    #[arg(long, value_name = "PARAM", requires = "each")]
    each_as: Option<String>,
    /// The form of the file: lines, a value a line; csv, whose first line names the parameters; or ndjson, a JSON object of parameters a line
    /// [default: by its name, *.csv, *.ndjson or *.jsonl, else lines].
    #[arg(long, value_name = "FORM", requires = "each", hide_possible_values = true)]
    each_format: Option<EachFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EachFormat {
    /// A value a line.
    Lines,
    /// CSV with a header.
    Csv,
    /// A JSON object a line.
    Ndjson,
}

impl EachArgs {
    /// The lines of a request that makes a job with this name and these fields for each line of the file. A server that is away is waited for
    /// if there is an outage.
    ///
    /// # Errors
    /// The file cannot be read, has no jobs or too many, or a line of it is wrong.
    pub(super) async fn body(
        &self,
        file: &Path,
        api: &Api,
        (name, fields): (&str, &Map<String, Value>),
        outage: Option<&mut Outage>,
    ) -> anyhow::Result<String> {
        let format = self.each_format.unwrap_or_else(|| format_of(file));
        if self.each_as.is_some() && format != EachFormat::Lines {
            let text = "--each-as is for lines: CSV and JSON name their parameters themselves";
            return Err(Failure::new(Exit::Usage, text).hint("add --each-format lines").into());
        }
        let lines = Lines::open(file)?;
        let mut body = Body::new(name, fields, lines.name.clone());
        match format {
            EachFormat::Lines => {
                let param = match &self.each_as {
                    Some(param) if body.params.contains_key(param) => {
                        let text = format!("the parameter {param} is the line, and is given with -p as well");
                        return Err(Failure::new(Exit::Usage, text).into());
                    }
                    Some(param) => param.clone(),
                    None => only_required(api, name, &body.params, outage).await?,
                };
                lines.for_each_filled(|number, line| body.add(number, [(param.clone(), json!(line))]))?;
            }
            EachFormat::Csv => {
                let mut reader = csv::Reader::default();
                lines.for_each(|number, line| match reader.take(number, line) {
                    Ok(Some((first, record))) => body.add(first, record).map_err(|why| (first, why)),
                    Ok(None) => Ok(()),
                    Err(fault) => Err(fault),
                })?;
                reader.finish().map_err(|(number, why)| body.fault(number, &why))?;
            }
            EachFormat::Ndjson => lines.for_each_filled(|number, line| body.add(number, object(line)?))?,
        }
        Ok(body.finish()?)
    }
}

fn format_of(file: &Path) -> EachFormat {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => EachFormat::Csv,
        Some("ndjson" | "jsonl") => EachFormat::Ndjson,
        _ => EachFormat::Lines,
    }
}

/// The required parameter of a definition that is not given yet, if there is just one.
async fn only_required(
    api: &Api,
    name: &str,
    given: &Map<String, Value>,
    outage: Option<&mut Outage>,
) -> anyhow::Result<String> {
    let ask = async || api.json(api.get(&["api", "definitions", name])).await;
    let json = until_answered(outage, Awaited::Nothing, ask).await?;
    let definition: view::Definition = parse(api, &json)?;
    let required =
        definition.params.iter().filter(|param| param.required && !given.contains_key(&param.name));
    let required: Vec<&str> = required.map(|param| param.name.as_str()).collect();
    if let [only] = required[..] {
        return Ok(only.to_owned());
    }
    let (text, hint) = match (definition.params.is_empty(), required.is_empty()) {
        (true, _) => {
            (format!("{name} has no parameters, so a line cannot be one"), "add 'params' to the definition")
        }
        (_, true) => (
            format!(
                "{name} requires no parameter that is not given, so it is not clear which one the line is"
            ),
            "name it with --each-as",
        ),
        _ => (
            format!("{name} requires several parameters: {}", required.join(", ")),
            "name the one of the line with --each-as and give the others with -p, or give all in CSV",
        ),
    };
    Err(Failure::new(Exit::Usage, text).hint(hint).into())
}

/// The parameters of a line of JSON.
fn object(line: &str) -> Result<Map<String, Value>, String> {
    let Pairs(pairs) = serde_json::from_str(line).map_err(|error| {
        if error.is_data() {
            return "it is not a JSON object of parameters".to_owned();
        }
        let (text, column) = (error.to_string(), error.column());
        let place = format!(" at line {} column {column}", error.line());
        format!("it is not JSON: column {column}: {}", text.strip_suffix(&place).unwrap_or(&text))
    })?;
    let mut object = Map::new();
    for (name, value) in pairs {
        if object.contains_key(&name) {
            return Err(format!("it names {} twice", screen::visible(&name)));
        }
        object.insert(name, value);
    }
    Ok(object)
}

/// The members of a JSON object in their order. A map would silently keep the last one of a name.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        from.deserialize_map(PairsVisitor)
    }
}

/// The lines of a file, with their numbers from 1.
struct Lines {
    name: String,
    reader: Box<dyn BufRead>,
}

impl Lines {
    fn open(file: &Path) -> Result<Self, Failure> {
        if file.as_os_str() == "-" {
            return Ok(Self { name: "standard input".to_owned(), reader: Box::new(io::stdin().lock()) });
        }
        let name = screen::visible(&file.display().to_string()).into_owned();
        match File::open(file) {
            Ok(opened) => Ok(Self { name, reader: Box::new(BufReader::new(opened)) }),
            Err(error) => Err(Failure::new(Exit::Usage, format!("cannot read {name}: {error}"))),
        }
    }

    /// Hands each line that is not blank to `take`.
    fn for_each_filled(self, mut take: impl FnMut(usize, &str) -> Result<(), String>) -> Result<(), Failure> {
        self.for_each(|number, line| match line.trim().is_empty() {
            true => Ok(()),
            false => take(number, csv::without_break(line)).map_err(|why| (number, why)),
        })
    }

    /// Hands each line to `take`, with its line break. A fault has the number of the line to blame.
    fn for_each(
        mut self,
        mut take: impl FnMut(usize, &str) -> Result<(), csv::Fault>,
    ) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            let read = (&mut self.reader).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut bytes);
            let told = match read {
                Ok(0) => break,
                Ok(_) if bytes.len() as u64 > LINE_BYTES_MAX => {
                    Err((number, format!("it is longer than {LINE_BYTES_MAX} bytes")))
                }
                Ok(_) => match std::str::from_utf8(&bytes) {
                    Ok(text) => {
                        let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text };
                        take(number, text)
                    }
                    Err(_) => Err((number, "it is not UTF-8".to_owned())),
                },
                Err(error) => Err((number, format!("it cannot be read: {error}"))),
            };
            told.map_err(|(number, why)| fault(&self.name, number, &why))?;
        }
        Ok(())
    }
}

fn fault(file: &str, line: usize, why: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{file}:{line}: {why}"))
}

/// The lines of the request.
struct Body {
    file: String,
    text: String,
    /// Lines that `text` has.
    lines: usize,
    jobs: usize,
    /// The fields that all jobs have, without parameters.
    fields: Map<String, Value>,
    /// The parameters that all jobs have.
    params: Map<String, Value>,
}

impl Body {
    fn new(name: &str, fields: &Map<String, Value>, file: String) -> Self {
        let mut fields = fields.clone();
        let params = match fields.remove("params") {
            Some(Value::Object(params)) => params,
            _ => Map::new(),
        };
        fields.insert("name".to_owned(), json!(name));
        Self { file, text: String::new(), lines: 0, jobs: 0, fields, params }
    }

    /// Adds a job with these parameters over those of all jobs, as the line with this number.
    fn add(
        &mut self,
        number: usize,
        params: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<(), String> {
        let mut all = self.params.clone();
        all.extend(params);
        self.jobs += 1;
        if self.jobs > JOBS_MAX {
            return Err(format!(
                "a batch has at most {JOBS_MAX} jobs, and this is one more: divide the file"
            ));
        }
        while self.lines + 1 < number {
            self.text.push('\n');
            self.lines += 1;
        }
        self.fields.insert("params".to_owned(), Value::Object(all));
        self.text.push_str(&serde_json::to_string(&self.fields).map_err(|error| error.to_string())?);
        self.text.push('\n');
        self.lines += 1;
        match self.text.len() > BODY_BYTES_MAX {
            true => Err(format!(
                "the request is longer than {BODY_BYTES_MAX} bytes from here on: divide the file"
            )),
            false => Ok(()),
        }
    }

    fn fault(&self, line: usize, why: &str) -> Failure {
        fault(&self.file, line, why)
    }

    fn finish(self) -> Result<String, Failure> {
        match self.jobs {
            0 => Err(Failure::new(Exit::Usage, format!("{} has no line for a job", self.file))),
            _ => Ok(self.text),
        }
    }
}

/// Jobs of a batch, as the server limits them.
const JOBS_MAX: usize = 100_000;
/// Bytes of a request, as the server limits them.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes of a line. No parameter of a job may be this long.
const LINE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn body(
        text: &str,
        mut add: impl FnMut(&mut Body, usize, &str) -> Result<(), String>,
    ) -> Result<String, String> {
        let fields = json!({ "priority": 3, "params": { "mode": "fast" } });
        let mut body = Body::new("resize", fields.as_object().unwrap(), "sizes".to_owned());
        let lines = Lines { name: "sizes".to_owned(), reader: Box::new(io::Cursor::new(text.to_owned())) };
        lines
            .for_each_filled(|number, line| add(&mut body, number, line))
            .map_err(|failure| failure.to_string())?;
        body.finish().map_err(|failure| failure.to_string())
    }

    fn as_size(body: &mut Body, number: usize, line: &str) -> Result<(), String> {
        body.add(number, [("size".to_owned(), json!(line))])
    }

    #[test]
    fn each_job_stands_on_the_line_that_it_has_in_the_file() {
        let text = body("\u{feff}640\r\n\n  \n8 0\n", as_size);
        let job = |size: &str| {
            format!(r#"{{"name":"resize","params":{{"mode":"fast","size":"{size}"}},"priority":3}}"#)
        };
        assert_eq!(text.unwrap(), format!("{}\n\n\n{}\n", job("640"), job("8 0")));
    }

    #[test]
    fn a_fault_names_the_file_and_the_line() {
        let json = body("{}\n\n[1]\n", |body, number, line| body.add(number, object(line)?));
        assert_eq!(json.unwrap_err(), "sizes:3: it is not a JSON object of parameters");
        assert_eq!(
            object(r#"{"a":1,}"#).unwrap_err(),
            "it is not JSON: column 8: trailing comma",
            "without a line: the file has another one"
        );
        assert_eq!(object(r#"{"size":1,"mode":2,"size":3}"#).unwrap_err(), "it names size twice");
        assert_eq!(Value::from(object(r#"{"a":[1]}"#).unwrap()), json!({ "a": [1] }));
        let none = body("", as_size);
        assert_eq!(none.unwrap_err(), "sizes has no line for a job");
        let many = "x\n".repeat(JOBS_MAX + 1);
        let many = body(&many, as_size).unwrap_err();
        assert!(many.starts_with("sizes:100001: a batch has at most 100000 jobs"), "{many}");
        let long = "x".repeat(LINE_BYTES_MAX as usize + 1);
        assert!(body(&long, as_size).unwrap_err().starts_with("sizes:1: it is longer than"));
    }

    #[test]
    fn the_form_follows_the_name_of_the_file() {
        for (name, format) in [
            ("sizes.csv", EachFormat::Csv),
            ("sizes.jsonl", EachFormat::Ndjson),
            ("sizes.txt", EachFormat::Lines),
            ("-", EachFormat::Lines),
        ] {
            assert_eq!(format_of(Path::new(name)), format, "{name}");
        }
    }
}
