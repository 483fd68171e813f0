//! Flags of the verbs that make batches: the unique key of the batch.

use clap::builder::PossibleValuesParser;
use reqwest::RequestBuilder;

/// The unique key of a new batch.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct UniqueArgs {
    /// Unique key of the batch: at most one batch with this key has not ended.
    #[arg(long, value_name = "KEY")]
    pub(crate) batch_unique_key: Option<String>,
    /// If a batch with the key has not ended: print that one (return), fail (reject), or cancel it and make the new one (replace) [default: return].
    #[arg(long, value_name = "ANSWER", requires = "batch_unique_key", value_parser = PossibleValuesParser::new(["return", "reject", "replace"]))]
    pub(crate) on_duplicate: Option<String>,
}

impl UniqueArgs {
    /// The parameters of the API that are given.
    pub(crate) fn params(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("batch_unique_key", &self.batch_unique_key), ("on_duplicate", &self.on_duplicate)];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// Adds them to a request whose options are in its query.
    pub(crate) fn add_to(&self, request: RequestBuilder) -> RequestBuilder {
        self.params().fold(request, |request, param| request.query(&[param]))
    }
}
