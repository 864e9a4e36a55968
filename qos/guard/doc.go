// Package guard holds traffic that is promised nothing to what promises leave on links: by
// meters, one for each link, that critical flows of best effort and further subflows of large
// connections share. What has no such meter, as ordinary traffic, is not held back.
//
// [Guard] is shared by the services; [Stored] is how they keep what their rules pass over a
// restart, so that switches keep their meters.
package guard
