//! A builder of tensors as PyTorch saves them.

/// The pickle that PyTorch writes for a tensor `[rows, 3]`.
pub fn pickle(storage: &str, rows: u8) -> Vec<u8> {
    let mut to = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x00((X\x07\x00\x00\x00storageq\x01ctorch\n".to_vec();
    to.extend(storage.as_bytes());
    to.extend(b"\nq\x02X\x01\x00\x00\x000q\x03X\x03\x00\x00\x00cpuq\x04J\x06\x00\x00\x00tq\x05QK\x00K");
    to.extend([rows]);
    to.extend(b"K\x03\x86q\x06K\x03K\x01\x86q\x07\x89ccollections\nOrderedDict\nq\x08)Rq\x09tq\x0aRq\x0b.");
    to
}

/// A zip file in the layout of PyTorch.
pub fn zip(entries: &[(&str, &[u8])], method: u8) -> Vec<u8> {
    let (mut to, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let at = (to.len() as u32).to_le_bytes();
        let (size, name_length) = ((data.len() as u32).to_le_bytes(), (name.len() as u16).to_le_bytes());
        // PyTorch writes sizes only to the central directory and aligns the data with an extra field.
        to.extend(b"PK\x03\x04\x00\x00\x08\x08");
        to.extend([method, 0]);
        to.extend([0; 16]);
        to.extend(name_length);
        to.extend(7u16.to_le_bytes());
        to.extend(name.as_bytes());
        to.extend(b"FB\x03\x00ZZZ");
        to.extend(*data);
        directory.extend(b"PK\x01\x02\x00\x00\x00\x00\x08\x08");
        directory.extend([method, 0]);
        directory.extend([0; 8]);
        directory.extend([size, size].concat());
        directory.extend(name_length);
        directory.extend([0; 12]);
        directory.extend(at);
        directory.extend(name.as_bytes());
    }
    let (start, count) = (to.len() as u32, (entries.len() as u16).to_le_bytes());
    to.extend(&directory);
    to.extend(b"PK\x05\x06\x00\x00\x00\x00");
    to.extend([count, count].concat());
    to.extend((directory.len() as u32).to_le_bytes());
    to.extend(start.to_le_bytes());
    to.extend([0, 0]);
    to
}
