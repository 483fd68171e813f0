//! The address of a list: its filters as the form sent them, and the addresses of further pages.

use axum::http::Uri;

use crate::http::middleware::problem::Problem;
use crate::http::request::query::{Query, encode};

/// The parameters of a list's address that have a value.
pub(crate) struct ListAddress {
    filled: Vec<(String, String)>,
}

impl ListAddress {
    /// Browsers send each field of a form, empty or not. Empty ones are left out.
    ///
    /// # Errors
    /// `invalid_query` if the parameters cannot be decoded.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Problem> {
        let pairs = Query::pairs(uri)?;
        Ok(Self { filled: pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect() })
    }

    /// The parameters, for the function of the API.
    pub(crate) fn query(&self) -> Query {
        Query::new(self.filled.clone())
    }

    /// The value of a field of the form; empty if it was not filled.
    pub(crate) fn value(&self, name: &str) -> String {
        let found = self.filled.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// The query of the next page, which begins at this cursor.
    pub(crate) fn next_page(&self, cursor: Option<&str>) -> Option<String> {
        let next = ("cursor", cursor?);
        Some(encode(self.pairs().filter(|(name, _)| *name != "cursor").chain([next])))
    }

    /// The query that selects the same entries, on whichever page.
    pub(crate) fn selection(&self) -> String {
        encode(self.pairs().filter(|(name, _)| !matches!(*name, "cursor" | "limit")))
    }

    /// The query of the first page with another value of a field.
    pub(crate) fn replaced(&self, name: &str, value: &str) -> String {
        let replaced = |(field, old)| if field == name { (field, value) } else { (field, old) };
        encode(self.pairs().filter(|(field, _)| *field != "cursor").map(replaced))
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.filled.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The refusal of a filter, shown with the filters as they were sent.
pub(super) struct FilterFault {
    /// The parameter that was refused.
    field: String,
    pub(super) text: String,
}

impl FilterFault {
    /// `None` for a problem that is not the fault of a parameter.
    pub(super) fn of(problem: &Problem) -> Option<Self> {
        let field = problem.wrong_field()?.strip_prefix('?')?;
        let hint = problem.advice().map(|hint| format!("; {hint}")).unwrap_or_default();
        Some(Self { field: field.to_owned(), text: format!("{field}: {}{hint}", problem.detail()) })
    }

    /// True if this parameter was refused.
    pub(super) fn is_of(&self, field: &str) -> bool {
        self.field == field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_filters_over_pages() {
        let address = ListAddress::of(&"/jobs?state=failed&name=&limit=5&cursor=a".parse().unwrap()).unwrap();
        assert_eq!((address.value("state"), address.value("name")), ("failed".to_owned(), String::new()));
        assert_eq!(address.next_page(Some("b")).as_deref(), Some("state=failed&limit=5&cursor=b"));
        assert_eq!(address.next_page(None), None);
        assert_eq!(address.selection(), "state=failed");
        assert_eq!(address.replaced("state", "*"), "state=*&limit=5");
    }
}
