//! Links between the pages of this project lead somewhere: to a file that exists, and to a heading in it.

use super::Complaint;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (file, text) in tree.files().filter(|(file, _)| file.ends_with(".md")) {
        for (line, prose) in prose(text) {
            for target in targets(&prose).filter(|target| !is_elsewhere(target)) {
                if let Err(what) = follow(tree, file, target) {
                    complaints.push(Complaint {
                        file: file.to_owned(),
                        line,
                        what,
                        why: "a reader who follows it finds nothing",
                        instead: "mend the link, or write the missing page",
                    });
                }
            }
        }
    }
    complaints
}

/// The lines outside of code, numbered from 1; code inside of a line is blanked.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        let outside = line.split('`').enumerate().map(|(part, words)| if part % 2 == 0 { words } else { "" });
        (!in_code).then(|| (index + 1, outside.collect()))
    })
}

/// The targets of links: between `](` and `)`, and after `]: ` at the beginning of a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let defined =
        line.starts_with('[').then(|| line.split_once("]: ")).flatten().map(|(_, target)| target.trim());
    inline.chain(defined).filter(|target| !target.is_empty())
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:") || target.starts_with('/')
}

fn follow(tree: &Tree, from: &str, target: &str) -> Result<(), String> {
    let (path, heading) =
        target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let to = if path.is_empty() { Some(from.to_owned()) } else { resolve(from, path) };
    let Some(to) = to.filter(|to| tree.has(to)) else {
        return Err(format!("the link to `{target}` leads to no file"));
    };
    match heading.zip(tree.text(&to)) {
        Some((heading, page)) if to.ends_with(".md") && !has_heading(page, heading) => {
            Err(format!("the link to `{target}` leads to no heading"))
        }
        _ => Ok(()),
    }
}

/// The path that `target` means in `from`; `None` if it leaves the project.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut path: Vec<&str> = from.split('/').collect();
    path.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()?),
            part => path.push(part),
        }
    }
    Some(path.join("/"))
}

fn has_heading(page: &str, wanted: &str) -> bool {
    let mut in_code = false;
    page.lines().any(|line| {
        in_code ^= line.trim_start().starts_with("```");
        !in_code && line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == wanted
    })
}

/// As forges make it of a heading: lower case, spaces to dashes, other marks dropped.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let tree =
            Tree::of(&[("docs/a.md", text), ("docs/b.md", "# One: two, `three`\n"), ("README.md", "")]);
        check(&tree).into_iter().map(|it| (it.line, it.what)).collect()
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        assert_eq!(found("x\n[b](c.md)"), [(2, "the link to `c.md` leads to no file".to_owned())]);
        assert_eq!(found("[up](../../out.md)").len(), 1);
        assert_eq!(found("[b]: c.md").len(), 1);
        assert_eq!(found("[b](b.md) [r](../README.md) [d](../docs) [w](https://a.example/c.md)"), []);
    }

    #[test]
    fn a_link_to_a_missing_heading_is_found() {
        assert_eq!(found("[b](b.md#four)"), [(1, "the link to `b.md#four` leads to no heading".to_owned())]);
        assert_eq!(found("[b](b.md#one-two-three) [c](#self)\n## Self"), []);
    }

    #[test]
    fn code_has_no_links() {
        assert_eq!(found("`[b](c.md)`\n```\n[b](c.md)\n```\n"), []);
    }
}
