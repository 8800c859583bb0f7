//! The measured ceiling of the CPU device.

use std::time::Duration;

use reseed_cpu::CpuOps;
use reseed_ops::{Ceiling, Cost, DType, Result};

#[test]
fn work_at_the_ceiling_has_a_share_of_one() -> Result<()> {
    let ceiling = Ceiling::measure(&CpuOps::new(DType::F32, Some(1))?)?;
    assert!(ceiling.flops > 0.0 && ceiling.bytes > 0.0, "{ceiling:?}");
    let second = Duration::from_secs(1);
    let all = Cost { flops: ceiling.flops as u64, bytes: 0 };
    assert!((ceiling.share(all, second) - 1.0).abs() < 1e-6);
    let half = Cost { flops: 0, bytes: (ceiling.bytes / 2.0) as u64 };
    assert!((ceiling.share(half, second) - 0.5).abs() < 1e-6);
    Ok(())
}
