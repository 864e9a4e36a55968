// Command suite runs go test for the Makefile, and says no where go test does not: a test
// that is skipped fails in CI unless .ci/skips lists it with a reason, and a test that fails
// is run again only if .ci/quarantine lists it, after its name and output have been printed.
//
//	suite FLAGS AND PACKAGES OF go test ...
package main
