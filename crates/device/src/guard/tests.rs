use std::os::unix::fs::FileExt;

use super::*;
use crate::testing::{Loop, Mounted, root, tool};

fn found(path: &Path) -> (FindingKind, String) {
    let finding = inspect(path).expect("examined").expect("something");
    (finding.kind, finding.text)
}

fn sparse(path: &Path, len: u64) -> File {
    let file = File::create(path).expect("create");
    file.set_len(len).expect("resize");
    file
}

#[test]
fn nothing_and_zeroes_may_be_overwritten() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("f");
    assert_eq!(inspect(&path).expect("examined"), None);
    let file = sparse(&path, 1 << 40);
    assert_eq!(inspect(&path).expect("examined"), None);
    file.write_all_at(&[0; 8192], 1 << 30).expect("write");
    assert_eq!(inspect(&path).expect("examined"), None);
    file.write_all_at(&[0, 0, 1], (1 << 35) + 77)
        .expect("write");
    let (kind, text) = found(&path);
    assert_eq!(
        (kind, text.as_str()),
        (
            FindingKind::Data,
            "holds data: byte 34359738447 is not zero"
        )
    );
    assert_eq!(found(dir.path()).1, "is a directory");
    assert_eq!(found(Path::new("/dev/zero")).0, FindingKind::NotStorage);
}

#[test]
fn labels_are_named() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("f");
    let name = path.display().to_string();
    drop(sparse(&path, 16 << 20));
    tool("mkfs.ext4", &["-q", "-F", "-L", "precious", &name]);
    assert_eq!(
        found(&path),
        (
            FindingKind::Signature,
            "holds a file system: ext4 labelled `precious`".into()
        )
    );
    drop(sparse(&path, 16 << 20));
    tool("mkswap", &[&name]);
    assert_eq!(
        found(&path),
        (FindingKind::Signature, "holds a label: swap".into())
    );
    // A protective MBR and nothing else.
    let file = sparse(&path, 16 << 20);
    let mut sector = [0; 512];
    sector[446 + 4] = 0x83;
    sector[446 + 8] = 1;
    sector[446 + 12] = 100;
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    file.write_all_at(&sector, 0).expect("write");
    assert_eq!(
        found(&path),
        (
            FindingKind::Signature,
            "holds a partition table: dos".into()
        )
    );
}

#[test]
fn what_is_in_use_is_found_through_loop_devices_and_mounts() {
    if !root("what_is_in_use_is_found_through_loop_devices_and_mounts") {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("f");
    drop(sparse(&path, 16 << 20));
    let device = Loop::new(&path, 512);
    let node = Path::new(&device.0);
    assert_eq!(
        found(&path),
        (FindingKind::InUse, format!("is attached as {}", device.0))
    );
    assert_eq!(inspect(node).expect("examined"), None);
    tool("mkfs.ext4", &["-q", "-F", &device.0]);
    assert_eq!(found(node).0, FindingKind::Signature);
    let point = tempfile::tempdir().expect("directory");
    let point_name = point.path().display().to_string();
    tool("mount", &[&device.0, &point_name]);
    let mounted = Mounted(point);
    assert_eq!(
        found(node),
        (FindingKind::Mounted, format!("is mounted on {point_name}"))
    );
    let text = format!(
        "is attached as {}, which is mounted on {point_name}",
        device.0
    );
    assert_eq!(found(&path), (FindingKind::Mounted, text));
    // The kernel's claim keeps a device that is mounted from being opened at all.
    let open = crate::FileDevice::open(
        &crate::FileOptions::new(node),
        ashlar_block::BlockSize::B4096,
    );
    let error = open.err().expect("refused").to_string();
    let named = format!("is in use: it is mounted on {point_name}");
    assert!(error.ends_with(&named), "{error}");
    drop(mounted);
}

#[test]
fn data_in_the_middle_of_a_device_is_sampled() {
    if !root("data_in_the_middle_of_a_device_is_sampled") {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("f");
    let file = sparse(&path, 64 << 20);
    file.write_all_at(&[5], 40_000_000).expect("write");
    let device = Loop::new(&path, 512);
    assert_eq!(
        found(Path::new(&device.0)).1,
        "holds data: byte 40000000 is not zero"
    );
}
