//! Rendering of results: a table, charts, and the figures in the README and the pages. All of it follows from the
//! results alone, so that a test can detect a page that differs.

mod chart;
mod marked;
mod number;
mod scale;
mod table;
mod wording;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::results::Results;

/// Directory of the results, relative to the root of the repository.
pub const FOLDER: &str = "bench/results";

/// Results file that everything is rendered from.
pub const LATEST: &str = "bench/results/latest.json";

/// Writes the table, the charts and the figures in the pages, and removes obsolete charts.
pub fn write_all(results: &Results, root: &Path) -> io::Result<()> {
    std::fs::create_dir_all(root.join(FOLDER))?;
    let files = files(results, root)?;
    for chart in left_over(root, &files)? {
        std::fs::remove_file(root.join(chart))?;
    }
    for (path, text) in files {
        let path = root.join(path);
        if present(&path)?.as_ref() != Some(&text) {
            std::fs::write(path, text)?;
        }
    }
    Ok(())
}

/// Files that differ from the results, each with the first differing line.
pub fn differences(results: &Results, root: &Path) -> io::Result<Vec<String>> {
    let files = files(results, root)?;
    let mut found: Vec<String> = left_over(root, &files)?
        .into_iter()
        .map(|chart| format!("{}: the results have no such chart", chart.display()))
        .collect();
    for (path, wanted) in &files {
        match present(&root.join(path))? {
            None => found.push(format!("{}: missing", path.display())),
            Some(there) => found.extend(first_difference(&there, wanted).map(|line| {
                let line_of = |text: &str| text.lines().nth(line).unwrap_or("(nothing)").to_owned();
                let (there, wanted) = (line_of(&there), line_of(wanted));
                format!("{}:{}: it has\n    {there}\n  not\n    {wanted}", path.display(), line + 1)
            })),
        }
    }
    Ok(found)
}

/// Expected contents of every file that shows results, by its path from the root.
fn files(results: &Results, root: &Path) -> io::Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    for chart in &results.charts {
        let name = Path::new(FOLDER).join(format!("{}.svg", chart.id));
        let drawn = chart::svg(chart).map_err(|error| invalid(&name, &error))?;
        if files.insert(name.clone(), drawn).is_some() {
            return Err(invalid(&name, "two charts have this name"));
        }
    }
    files.insert(Path::new(FOLDER).join("latest.md"), table::page(results));
    for path in pages(root)? {
        let text = std::fs::read_to_string(root.join(&path))?;
        let text = marked::fill(&text, results).map_err(|error| invalid(&path, &error))?;
        files.insert(path, text);
    }
    let readme = PathBuf::from("README.md");
    if let Some(text) = files.remove(&readme) {
        let text = marked::replace_block(&text, "figures", &table::readme(results))
            .map_err(|error| invalid(&readme, &error))?;
        files.insert(readme, text);
    }
    Ok(files)
}

/// README and pages of the book, which may contain marked figures.
fn pages(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Charts in the directory that the results do not have.
fn left_over(root: &Path, files: &BTreeMap<PathBuf, String>) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join(FOLDER))? {
        let path = Path::new(FOLDER).join(entry?.file_name());
        if path.extension().is_some_and(|ending| ending == "svg") && !files.contains_key(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn present(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Zero-based number of the first differing line.
fn first_difference(one: &str, other: &str) -> Option<usize> {
    if one == other {
        return None;
    }
    let alike = one.lines().zip(other.lines()).take_while(|(one, other)| one == other).count();
    Some(alike)
}

fn invalid(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests;
