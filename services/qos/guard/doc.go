// Package guard limits traffic without a promise (reserved bandwidth) to what promises and ordinary
// traffic leave on links. It uses one meter for each link, which best-effort critical flows and
// further subflows of large connections share. Ordinary traffic has no meter, and is not limited.
// Its rate is measured and subtracted from the rates of the meters, so that promises lose nothing
// to the traffic that passes meters.
//
// Start reading at [Guard], which the services share. Services store the meters that their rules
// use in the form of [Stored], so that switches keep these meters over a restart.
package guard
