//! What share of a pool's drives can be data, as the pool itself tells it.

use ashlar_lab::result::Capacity;
use ashlar_lab::{LabError, Pool};
use ashlar_node::model::LayoutSpec;
use serde_json::Value;

use super::process::ashlar;

/// Asks a pool that keeps space for repair, and has it keep none from then on: what is measured has its drives full.
pub(crate) fn asked(name: &str, api: &str, pool: &Pool) -> Result<Option<Capacity>, LabError> {
    let text = ashlar(&["pool", "status", name, "--json", "--api", api])?;
    let status: Value = serde_json::from_str(&text)
        .map_err(|error| LabError::caused("ashlar pool status", error))?;
    ashlar(&["pool", "reserve", name, "none", "--api", api])?;
    Ok(of(&status, pool))
}

/// What a pool's status says of the layout of a volume; nothing of a pool with drives of two classes, whose logs and map
/// are elsewhere.
fn of(status: &Value, pool: &Pool) -> Option<Capacity> {
    if pool.fast > 0 {
        return None;
    }
    let layouts = status["layouts"].as_array()?;
    // Drives' bytes for a byte of data.
    let each = |layout: &str, key: &str| -> Option<f64> {
        let layout: LayoutSpec = layout.split('@').next()?.parse().ok()?;
        let name = layout.to_string();
        let of = layouts.iter().find(|of| of["layout"] == *name)?;
        of[key]
            .as_f64()
            .filter(|share| *share > 0.0)
            .map(|share| 1.0 / share)
    };
    let share = |key: &str| -> Option<f64> {
        let cold = each(&pool.layout, key)?;
        let all = match &pool.hot {
            Some(hot) => {
                let share = pool.hot_part();
                share * each(hot, key)? + (1.0 - share) * cold
            }
            None => cold,
        };
        Some(100.0 / all / f64::from(pool.nodes()))
    };
    let space = &status["space"];
    let kept = |purpose: &str| -> Option<u64> {
        let all = space["reserves"].as_array()?;
        all.iter().find(|of| of["purpose"] == *purpose)?["bytes"].as_u64()
    };
    // Before there is a volume, drives hold the logs and what the map has taken.
    let held = |drive: &Value| drive["used_bytes"].as_u64();
    let held: Option<u64> = status["drives"].as_array()?.iter().map(held).sum();
    Some(Capacity {
        layout_pct: share("efficiency_without_reserves")?,
        with_reserves_pct: share("efficiency_with_reserves")?,
        raw_bytes: space["raw_bytes"].as_u64()?,
        repair_bytes: kept("repair")?,
        metadata_bytes: kept("metadata")?.saturating_add(held?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool {
            layout: "parity:4+1".to_owned(),
            drives: 5,
            ..Pool::default()
        }
    }

    #[test]
    fn what_is_kept_is_no_data() {
        let layout = |name: &str, with, without| {
            serde_json::json!({
                "layout": name, "efficiency_with_reserves": with, "efficiency_without_reserves": without
            })
        };
        let status = serde_json::json!({
            "layouts": [layout("mirror:2", 0.4, 0.5), layout("parity:4+1", 0.64, 0.8)],
            "drives": [{ "used_bytes": 4 }, { "used_bytes": 3 }],
            "space": { "raw_bytes": 1000, "reserves": [
                { "purpose": "metadata", "bytes": 10 }, { "purpose": "repair", "bytes": 190 }
            ] }
        });
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 0.01, "{found}");
        let one = of(&status, &pool()).expect("known");
        near(one.layout_pct, 80.0);
        near(one.with_reserves_pct, 64.0);
        assert_eq!(
            (one.repair_bytes, one.metadata_bytes, one.raw_bytes),
            (190, 17, 1000)
        );
        let nodes = Some(2);
        let two = of(&status, &Pool { nodes, ..pool() }).expect("known");
        near(two.with_reserves_pct, 32.0);
        // A fifth in a mirror, the rest in parity: 0.2 x 2.5 + 0.8 x 1.5625 bytes for each.
        let hot = Some("mirror:2@nvme".to_owned());
        let tiers = of(
            &status,
            &Pool {
                hot,
                hot_share: Some(20),
                ..pool()
            },
        )
        .expect("known");
        near(tiers.with_reserves_pct, 100.0 / 1.75);
        assert_eq!(of(&status, &Pool { fast: 2, ..pool() }), None);
        let layout = "mirror:9".to_owned();
        assert_eq!(of(&status, &Pool { layout, ..pool() }), None);
    }
}
