// Package guard limits traffic without a promise to what promises and ordinary traffic
// leave on links. It uses meters, one for each link, which best-effort critical flows and
// further subflows of large connections share. Ordinary traffic has no meter, and is not
// limited. Its use is measured, so that promises lose nothing to the traffic behind meters.
//
// Start reading at [Guard], which the services share. [Stored] is the form in which they
// store the meters that their rules use, so that switches keep their meters over a restart.
package guard
