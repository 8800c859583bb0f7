//! The record of measured matrix products: for each one whether Reseed's kernel or one of cuBLASLt is faster. It is a
//! file, so that nothing is measured twice.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use reseed_ops::DType;

use crate::cublaslt::Algorithm;

/// First line of the file.
const TITLE: &str = "# Reseed: the faster kernel of each measured matrix product, by GPU. May be deleted.";
/// Stamp of the kernels that were measured.
const STAMP: &str = include_str!("../cubin/STAMP");

/// A product y = x wᵀ, with or without a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    pub dtype: DType,
    pub rows: usize,
    pub d_in: usize,
    pub d_out: usize,
    pub biased: bool,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { dtype, rows, d_in, d_out, biased } = self;
        write!(f, "{dtype} {rows}x{d_in}x{d_out}{}", if *biased { " biased" } else { "" })
    }
}

/// The faster kernel for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelChoice {
    /// Reseed's.
    Own,
    /// One of cuBLASLt.
    Library(Algorithm),
}

impl fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelChoice::Own => f.write_str("own"),
            KernelChoice::Library(Algorithm(words)) => {
                f.write_str("cublaslt ")?;
                words.iter().try_for_each(|word| write!(f, "{word:016x}"))
            }
        }
    }
}

impl KernelChoice {
    fn parse(text: &str) -> Option<KernelChoice> {
        if text == "own" {
            return Some(KernelChoice::Own);
        }
        let digits = text.strip_prefix("cublaslt ").filter(|digits| digits.len() == 128 && digits.is_ascii())?;
        let mut words = [0; 8];
        for (i, word) in words.iter_mut().enumerate() {
            *word = u64::from_str_radix(&digits[16 * i..][..16], 16).ok()?;
        }
        Some(KernelChoice::Library(Algorithm(words)))
    }
}

/// The environment that a choice is valid for: GPU, driver, version of the library, stamp of the kernels.
pub fn machine(gpu: &str, driver: (usize, usize), library: usize) -> String {
    format!("{}\t{library}\t{}", gpu_and_driver(gpu, driver), STAMP.trim())
}

fn gpu_and_driver(gpu: &str, (major, minor): (usize, usize)) -> String {
    format!("{}\t{major}.{minor}", gpu.replace(char::is_whitespace, " "))
}

/// A record and its path.
#[derive(Debug, Default)]
pub struct Record {
    path: PathBuf,
    /// By machine and product.
    choices: BTreeMap<(String, String), KernelChoice>,
}

impl Record {
    /// Reads a record, or returns why it is ignored. A missing file is an empty record.
    pub fn read(path: &Path) -> (Record, Option<String>) {
        let empty = Record { path: path.into(), choices: BTreeMap::new() };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (empty, None),
            Err(error) => {
                return (empty, Some(format!("cannot read {}: {error}; Reseed's kernels are used", path.display())));
            }
        };
        match text.lines().enumerate().skip(1).map(|(i, line)| parse(line).ok_or(i + 1)).collect() {
            Ok(choices) if text.lines().next() == Some(TITLE) => (Record { choices, ..empty }, None),
            Ok(_) => (empty, Some(damaged(path, 1))),
            Err(line) => (empty, Some(damaged(path, line))),
        }
    }

    /// Numbers of products and of machines in it.
    pub fn counts(&self) -> (usize, usize) {
        let mut machines: Vec<&str> = self.choices.keys().map(|(machine, _)| machine.as_str()).collect();
        machines.dedup();
        (self.choices.len(), machines.len())
    }

    /// Whether the library is faster for any product on this GPU.
    pub fn wants_library(&self, gpu: &str, driver: (usize, usize)) -> bool {
        let start = format!("{}\t", gpu_and_driver(gpu, driver));
        let ours = |machine: &str| machine.starts_with(&start) && machine.ends_with(STAMP.trim());
        self.choices.iter().any(|((machine, _), choice)| ours(machine) && *choice != KernelChoice::Own)
    }

    pub fn get(&self, machine: &str, product: &Product) -> Option<KernelChoice> {
        self.choices.get(&(machine.to_string(), product.to_string())).copied()
    }

    pub fn add(&mut self, machine: &str, product: &Product, choice: KernelChoice) {
        self.choices.insert((machine.to_string(), product.to_string()), choice);
    }

    /// Writes a temporary file and renames it. Choices that other processes have written since are kept.
    pub fn write(&mut self) -> std::io::Result<()> {
        for (key, choice) in Record::read(&self.path).0.choices {
            self.choices.entry(key).or_insert(choice);
        }
        let line = |((machine, product), choice): (&(String, String), &KernelChoice)| {
            format!("{machine}\t{product}\t{choice}\n")
        };
        let text: String = [format!("{TITLE}\n")].into_iter().chain(self.choices.iter().map(line)).collect();
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let temporary = self.path.with_extension(format!("{}.part", std::process::id()));
        fs::write(&temporary, text)?;
        fs::rename(temporary, &self.path)
    }
}

fn damaged(path: &Path, line: usize) -> String {
    format!(
        "{}: line {line} is damaged; Reseed's kernels are used until the products are measured again",
        path.display()
    )
}

/// Parses GPU, driver, library, kernels; product; choice.
fn parse(line: &str) -> Option<((String, String), KernelChoice)> {
    let (rest, choice) = line.rsplit_once('\t')?;
    let (machine, product) = rest.rsplit_once('\t')?;
    (machine.split('\t').count() == 4).then_some(())?;
    Some(((machine.into(), product.into()), KernelChoice::parse(choice)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCT: Product = Product { dtype: DType::Bf16, rows: 18000, d_in: 2560, d_out: 7680, biased: true };

    fn missing_record() -> (temp_dir::TempDir, PathBuf) {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = folder.path().join("missing/folder/linear.txt");
        (folder, path)
    }

    #[test]
    fn choices_are_valid_for_the_measured_machine_only() {
        let (_folder, path) = missing_record();
        let (mut record, warning) = Record::read(&path);
        assert!(warning.is_none() && record.counts() == (0, 0));
        let choice = KernelChoice::Library(Algorithm([1, 2, 3, u64::MAX, 5, 6, 7, 8]));
        let here = machine("NVIDIA\tH200", (12, 8), 120_804);
        let other = Product { biased: false, ..PRODUCT };
        record.add(&here, &PRODUCT, choice);
        record.add(&here, &other, KernelChoice::Own);
        record.write().unwrap();
        let (record, warning) = Record::read(&path);
        assert_eq!((warning, record.counts()), (None, (2, 1)));
        assert_eq!([record.get(&here, &PRODUCT), record.get(&here, &other)], [Some(choice), Some(KernelChoice::Own)]);
        assert_eq!(record.get(&here, &Product { rows: 58, ..PRODUCT }), None);
        for elsewhere in
            [("NVIDIA H100", (12, 8), 120_804), ("NVIDIA H200", (13, 0), 120_804), ("NVIDIA H200", (12, 8), 130_000)]
        {
            assert_eq!(record.get(&machine(elsewhere.0, elsewhere.1, elsewhere.2), &PRODUCT), None, "{elsewhere:?}");
        }
        assert!(record.wants_library("NVIDIA H200", (12, 8)));
        assert!(!record.wants_library("NVIDIA H200", (12, 9)) && !record.wants_library("NVIDIA H20", (12, 8)));
    }

    #[test]
    fn two_writers_keep_the_choices_of_both() {
        let (_folder, path) = missing_record();
        let (mut first, mut second) = (Record::read(&path).0, Record::read(&path).0);
        let here = machine("GPU", (12, 8), 1);
        first.add(&here, &PRODUCT, KernelChoice::Own);
        first.write().unwrap();
        second.add(&here, &Product { rows: 1, ..PRODUCT }, KernelChoice::Own);
        second.write().unwrap();
        assert_eq!(Record::read(&path).0.counts(), (2, 1));
    }

    #[test]
    fn a_damaged_record_is_reported_and_ignored() {
        let (_folder, path) = missing_record();
        let (mut record, _) = Record::read(&path);
        record.add(&machine("GPU", (12, 8), 1), &PRODUCT, KernelChoice::Library(Algorithm::default()));
        record.write().unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let end = good.trim_end().len();
        for (bad, line) in [
            (good[..end - 1].to_string(), 2),
            (good.replace("cublaslt 0", "cublaslt x"), 2),
            (good.replace('\t', " "), 2),
            (format!("{good}\n"), 3),
            (good.replacen("Reseed", "Other", 1), 1),
        ] {
            fs::write(&path, &bad).unwrap();
            let (record, warning) = Record::read(&path);
            assert_eq!(record.counts(), (0, 0), "{bad}");
            assert!(warning.unwrap().contains(&format!("linear.txt: line {line} is damaged")), "{bad}");
        }
        fs::write(&path, [0xFF, 0xFE]).unwrap();
        assert!(Record::read(&path).1.unwrap().contains("linear.txt"));
    }
}
