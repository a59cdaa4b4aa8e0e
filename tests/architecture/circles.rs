//! Circles of imports: a file imports no file that imports it, not even through others. An import is a
//! `use` or a path in the code; re-exports are followed to the file that defines the name.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, Token, rust_files};

/// Segments of a path from the crate root.
type Path = Vec<String>;

/// A `use` of one name.
struct Import {
    /// Module that has the `use`.
    module: Path,
    target: Vec<String>,
    name: String,
    is_visible: bool,
}

/// What the files of `src` define, import and mention.
#[derive(Default)]
struct Index {
    /// File of each module.
    modules: BTreeMap<Path, String>,
    /// File of each item.
    items: BTreeMap<Path, String>,
    /// Target of each re-exported name.
    reexports: BTreeMap<Path, Path>,
    /// Targets of re-exports with `*`, for each module.
    globs: BTreeMap<Path, Vec<Path>>,
}

impl Index {
    fn new(files: &[Source]) -> Self {
        let mut index = Self::default();
        for file in files {
            index.modules.insert(module_of(&file.path), file.path.clone());
        }
        for file in files {
            let tokens = code_of(file);
            let scopes = Scopes::new(&file.path, &tokens);
            for (place, token) in tokens.iter().enumerate() {
                let defines = matches!(
                    token.text,
                    "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union"
                );
                if let (true, Some(name)) = (defines, tokens.get(place + 1)) {
                    let path = child(scopes.at(place), name.text);
                    index.items.entry(path).or_insert_with(|| file.path.clone());
                }
            }
            for import in imports(&file.path, &tokens).into_iter().filter(|used| used.is_visible) {
                let Some(target) = index.absolute(&import.module, &import.target) else { continue };
                if import.name == "*" {
                    index.globs.entry(import.module).or_default().push(target);
                } else {
                    index.reexports.insert(child(&import.module, &import.name), target);
                }
            }
        }
        index
    }

    /// The path from the root; `None` for a path of another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Path> {
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => {
                let climbs = path.iter().take_while(|part| *part == "super").count();
                let kept = module.len().checked_sub(climbs)?;
                Some([&module[..kept], &path[climbs..]].concat())
            }
            first => {
                let own = child(module, first);
                let is_local = self.modules.contains_key(&own) || self.has_module(&own);
                is_local.then(|| [module, path].concat())
            }
        }
    }

    /// Whether an inline module of this path re-exports something.
    fn has_module(&self, path: &[String]) -> bool {
        self.reexports.keys().any(|name| name.len() == path.len() + 1 && name.starts_with(path))
    }

    /// The file that defines what a path names.
    fn file_of(&self, path: &[String], depth: usize) -> Option<&str> {
        // Re-exports of re-exports end; a chain that does not is none of this test's business.
        if 8 < depth {
            return None;
        }
        for len in (1..=path.len()).rev() {
            let (head, rest) = path.split_at(len);
            if let Some(target) = self.reexports.get(head) {
                return self.file_of(&[target, rest].concat(), depth + 1);
            }
            if let Some(file) = self.items.get(head) {
                return Some(file);
            }
            if self.modules.contains_key(head) {
                let globs = self.globs.get(head).into_iter().flatten();
                let mut targets = globs.map(|glob| [glob, rest].concat());
                return match rest {
                    [] => self.modules.get(head).map(String::as_str),
                    _ => targets.find_map(|target| self.item_at(&target, depth + 1)),
                };
            }
        }
        None
    }

    fn item_at(&self, path: &[String], depth: usize) -> Option<&str> {
        let is_known = self.items.contains_key(path) || self.reexports.contains_key(path);
        is_known.then(|| self.file_of(path, depth)).flatten()
    }

    /// The other files that a file needs. `mod.rs` files only re-export, so they are not counted.
    fn needs(&self, file: &Source) -> BTreeSet<String> {
        let tokens = code_of(file);
        let module = module_of(&file.path);
        let imports = imports(&file.path, &tokens);
        let mut aliases = BTreeMap::new();
        let mut paths = Vec::new();
        for import in &imports {
            let Some(target) = self.absolute(&import.module, &import.target) else { continue };
            if !self.modules.contains_key(&target) {
                paths.push(target.clone());
            }
            aliases.insert(import.name.as_str(), target);
        }
        for mention in mentions(&tokens) {
            let alias = aliases.get(mention[0].as_str());
            let path = match alias {
                Some(target) => Some([target, &mention[1..]].concat()),
                None => self.absolute(&module, &mention),
            };
            paths.extend(path);
        }
        let found = paths.iter().filter_map(|path| self.file_of(path, 0));
        let counted = found.filter(|found| *found != file.path && !is_root(found));
        counted.map(str::to_owned).collect()
    }
}

/// The code that is not under `#[cfg(test)]`.
fn code_of(file: &Source) -> Vec<Token<'_>> {
    let tests = file.test_regions();
    let tokens = file.tokens();
    tokens.into_iter().filter(|token| !tests.iter().any(|test| test.contains(&token.at))).collect()
}

fn child(module: &[String], name: &str) -> Path {
    [module, &[name.to_owned()]].concat()
}

/// `["pool", "line"]` for `src/pool/line.rs`.
fn module_of(path: &str) -> Path {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    let inside = inside.trim_end_matches("mod").trim_end_matches('/');
    inside
        .split('/')
        .filter(|part| !matches!(*part, "" | "lib" | "main"))
        .map(str::to_owned)
        .collect()
}

fn is_root(path: &str) -> bool {
    path.ends_with("/mod.rs") || matches!(path, "src/lib.rs" | "src/main.rs")
}

/// The modules of a file: its own, and the inline ones with the tokens that they contain.
struct Scopes {
    file: Path,
    inline: Vec<(std::ops::Range<usize>, Path)>,
}

impl Scopes {
    fn new(path: &str, tokens: &[Token<'_>]) -> Self {
        let mut scopes = Self { file: module_of(path), inline: Vec::new() };
        for (index, head) in tokens.windows(3).enumerate() {
            if head[0].text != "mod" || head[2].text != "{" {
                continue;
            }
            let mut depth = 0usize;
            let closes = |token: &Token<'_>| {
                depth = match token.text {
                    "{" => depth + 1,
                    "}" => depth - 1,
                    _ => depth,
                };
                depth == 0
            };
            let len = tokens[index + 2..].iter().position(closes).unwrap_or(0);
            let module = child(scopes.at(index), head[1].text);
            scopes.inline.push((index + 2..index + 2 + len, module));
        }
        scopes
    }

    /// The module of a token.
    fn at(&self, token: usize) -> &Path {
        let inside = self.inline.iter().rev().find(|(range, _)| range.contains(&token));
        inside.map_or(&self.file, |(_, module)| module)
    }
}

/// Every name that the `use` lines of a file import.
fn imports(path: &str, tokens: &[Token<'_>]) -> Vec<Import> {
    let scopes = Scopes::new(path, tokens);
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let previous = index.checked_sub(1).map_or(";", |before| tokens[before].text);
        if token.text != "use" || !matches!(previous, ";" | "{" | "}" | "]" | ")" | "pub") {
            continue;
        }
        let module = scopes.at(index).clone();
        let is_visible = matches!(previous, "pub" | ")");
        let end = tokens[index..].iter().position(|token| token.text == ";").unwrap_or(1) + index;
        let mut at = 0;
        for (target, name) in leaves(&tokens[index + 1..end], &mut at, &[]) {
            found.push(Import { module: module.clone(), target, name, is_visible });
        }
    }
    found
}

/// The leaves of a use tree: path and imported name.
fn leaves(tree: &[Token<'_>], at: &mut usize, prefix: &[String]) -> Vec<(Path, String)> {
    let mut path = prefix.to_vec();
    let mut found = Vec::new();
    while let Some(token) = tree.get(*at) {
        *at += 1;
        match token.text {
            "::" => {}
            "*" => {
                found.push((path, "*".to_owned()));
                return found;
            }
            "{" => {
                while tree.get(*at).is_some_and(|token| token.text != "}") {
                    found.extend(leaves(tree, at, &path));
                    *at += usize::from(tree.get(*at).is_some_and(|token| token.text == ","));
                }
                *at += 1;
                return found;
            }
            "," | "}" => {
                *at -= 1;
                break;
            }
            "as" => {
                let name = tree.get(*at).map_or("_", |token| token.text);
                *at += 1;
                found.push((path, name.to_owned()));
                return found;
            }
            "self" if path != prefix || !prefix.is_empty() => {}
            segment => path.push(segment.to_owned()),
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    found.push((path, name));
    found
}

/// The paths with `::` in the code.
fn mentions(tokens: &[Token<'_>]) -> Vec<Path> {
    let is_name = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut found = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let mut end = index;
        while end + 2 < tokens.len()
            && is_name(tokens[end].text)
            && tokens[end + 1].text == "::"
            && is_name(tokens[end + 2].text)
        {
            end += 2;
        }
        if index < end {
            let path = tokens[index..=end].iter().step_by(2).map(|token| token.text.to_owned());
            found.push(path.collect());
        }
        index = end + 1;
    }
    found
}

/// Groups of files that need each other, each group in order.
fn circles(needs: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for next in needs.get(file).into_iter().flatten() {
                if seen.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        needs.keys().map(|file| (file.as_str(), reached(file))).collect();
    let in_circle = |file: &&str| reached[file].contains(file);
    let mut found = BTreeSet::new();
    for file in reached.keys().copied().filter(in_circle) {
        let back = |other: &&&str| reached.get(**other).is_some_and(|seen| seen.contains(file));
        found.insert(reached[file].iter().filter(back).map(|other| (*other).to_owned()).collect());
    }
    found.into_iter().collect()
}

fn circles_of(files: &[Source]) -> Vec<String> {
    let index = Index::new(files);
    let leaves = files.iter().filter(|file| !is_root(&file.path));
    let needs = leaves.map(|file| (file.path.clone(), index.needs(file))).collect();
    circles(&needs).into_iter().map(|circle| circle.join(" ")).collect()
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let files = rust_files().into_iter().filter(|file| file.path.starts_with("src/"));
    let found = circles_of(&files.collect::<Vec<_>>());
    assert!(found.is_empty(), "{} circles:\n{}", found.len(), found.join("\n"));
}

#[test]
fn planted_circle_is_found() {
    #[track_caller]
    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let files: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(*path, *text)).collect();
        assert_eq!(circles_of(&files), expect);
    }
    let root = ("src/lib.rs", "mod a;");
    let parent = ("src/a/mod.rs", "mod b; mod c; pub use b::B; pub use c::*;");
    let b = |code| ("src/a/b.rs", code);
    let c = |code| ("src/a/c.rs", code);
    check(&[root, parent, b("pub struct B;"), c("use super::b::B; pub struct C;")], &[]);
    let circle = ["src/a/b.rs src/a/c.rs"];
    check(
        &[root, parent, b("use super::c::C; pub struct B;"), c("use super::B; pub struct C;")],
        &circle,
    );
    check(
        &[root, parent, b("use crate::a::C; pub struct B;"), c("use crate::a::{B}; pub struct C;")],
        &circle,
    );
    check(
        &[
            root,
            parent,
            b("fn f() { crate::a::C }  struct B;"),
            c("use super::b; fn g() { b::f() } pub struct C;"),
        ],
        &circle,
    );
    check(
        &[
            root,
            parent,
            b("pub struct B; #[cfg(test)] mod t { use crate::a::C; }"),
            c("use super::B; pub struct C;"),
        ],
        &[],
    );
}
