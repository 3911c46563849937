//! Tests of the codecs. `samples` and `any` make structures that are right; the others damage them.

mod any;
mod batch_rules;
mod damage;
mod frozen;
mod root_rules;
mod round_trips;
mod rules;
mod samples;
