// Package guard holds traffic that is promised nothing to what promises and ordinary traffic leave
// on links: by meters, one for each link, that critical flows of best effort and further subflows
// of large connections share. Ordinary traffic has no meter, and is not held back. What it uses is
// measured, so that promises lose nothing to the traffic behind meters.
//
// [Guard] is shared by the services; [Stored] is how they keep what their rules pass over a
// restart, so that switches keep their meters.
package guard
